"""How sure each claim is: a row for each, with what stands behind it."""

from __future__ import annotations

from collections.abc import Iterable

from ..claim import Claim
from ..runner import Result

HEADER = ("claim", "in the paper", "by sympy", "in Coq", "for each run")
LEGEND = (
    "*In the paper*: printed in the draft, the article or the talk, as it is printed or corrected; the `errata-` "
    "claims are about what does not hold there. *By sympy*: the checks below, with what they cover. *In Coq*: how many "
    "theorems of it the kernel checks. *For each run*: what computes the claim's bound, or looks whether its premises "
    "hold, for the layer or network at hand: `certify` and `certify_network` where a certificate is made, `check` "
    "(`conv2attn check`) where the program that is proved checks a layer's `bound` again (in the exact regime, for "
    "alpha a power of two), `regime` whenever a layer is called."
)
_RUNS = {
    "conv2attn.convert.bounds.": "certify",
    "conv2attn.convert.certificate.network.": "certify_network",
    "conv2attn.proofs.formal.checker.": "check",
    "conv2attn.convert.heads.regime.": "regime",
}
_PRINTED = ("draft", "article", "theorem", "the theorem")


def rows(results: Iterable[Result]) -> list[tuple[str, str, str, str, str]]:
    """The cells of each claim, without its title: name, and what ``HEADER`` says after it."""
    return [
        (
            result.claim.name,
            in_the_paper(result.claim),
            by_sympy(result),
            in_coq(result.claim),
            ", ".join(f"`{run}`" for run in each_run(result.claim)) or "-",
        )
        for result in results
    ]


def in_the_paper(claim: Claim) -> str:
    """Whether its statement is printed there."""
    if claim.name.startswith("errata-"):
        return "printed, corrected here"
    return "printed" if claim.source.startswith(_PRINTED) else "new"


def by_sympy(result: Result) -> str:
    """Whether its checks hold, and what they cover."""
    covered = dict.fromkeys(str(check.kind) for check in result.claim.checks)
    return f"{result.status}: {', '.join(covered)}"


def in_coq(claim: Claim) -> str:
    """How many theorems of it Coq checks."""
    return f"{len(claim.formal)}" if claim.formal else "-"


def each_run(claim: Claim) -> list[str]:
    """What computes its bound, or checks its premises, for what a user runs."""
    return [run for prefix, run in _RUNS.items() if any(name.startswith(prefix) for name in claim.justifies)]
