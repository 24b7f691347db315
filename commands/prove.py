"""``conv2attn prove`` proves claims and writes their derivations; ``conv2attn claims`` lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..proofs.prover.claim import Status, all_claims, claim_headings, select
from ..proofs.prover.plain_text import plain_line, plain_text
from ..proofs.prover.run import DEFAULT_LIMIT, Outcome, Result, iter_results
from ..show.text import Table
from .ending import CANNOT_SAY
from .terminal import Done, outcome_json, say, say_document


def prove_claims(names: Sequence[str], *, show: str | None, form: str, out: Path | None, limit: float | None) -> int:
    """Proves claims, prints a line for each as it is decided, and prints or writes their derivations.

    The arguments are the command's options; the result is its exit code.
    """
    named = [*names, *([] if show is None else [show])] or None
    select(claim_headings(), named)
    from ..proofs.prover.document import document_file, render_markdown, sections

    chosen = select(all_claims(), named)
    printed = out is None and (show is not None or form != "text")
    results = []
    with document_file(out) as write:
        for result in iter_results(chosen, limit=limit or DEFAULT_LIMIT):
            say(*describe(result), err=printed)
            results.append(result)
        outcome = proved(results)
        say(*outcome.parts, err=printed)
        if out is not None or form != "text":
            text = outcome_json("prove", outcome) if form == "json" else render_markdown(results)
        else:
            text = plain_text("\n\n".join(sections(results)) + "\n")
        if out is not None:
            write(text)
            say(f"Wrote {out}")
    if printed:
        say_document(text)
    return outcome.exit_code


def list_claims() -> Done:
    """The claims that ``prove_claims`` takes."""
    claims = all_claims()
    data = [{"name": claim.name, "title": claim.title, "status": str(claim.status)} for claim in claims]
    rows = tuple((claim.name, str(claim.status), plain_line(claim.title)) for claim in claims)
    return Done({"claims": data}, [Table(("claim", "status", "title"), rows)])


def proved(results: Sequence[Result]) -> Done:
    """The outcome: claims, checks and timings, and in one line how many are proved, by what, and which are not.

    The exit code is 1 if a claim does not hold or its check broke, and else 5 if one ran out of time.
    """
    shown = Counter(result.claim.status for result in results if result.holds)
    parts = [f"{shown[status]} {status}{_BY[status]}" for status in Status if shown[status]]
    for outcome in (Outcome.FAILS, Outcome.ERROR, Outcome.TIMED_OUT):
        names = [result.claim.name for result in results if result.outcome is outcome]
        parts += [f"{len(names)} {_OTHERWISE[outcome]}: {', '.join(names)}"] if names else []
    outcomes = {result.outcome for result in results}
    code = 1 if outcomes & {Outcome.FAILS, Outcome.ERROR} else CANNOT_SAY if Outcome.TIMED_OUT in outcomes else 0
    claims = f"{len(results)} claim{'s' * (len(results) != 1)}"
    data = {"holds": not code, "counts": {str(status): shown[status] for status in Status}}
    return Done(data | {"claims": list(map(_data, results))}, [f"{claims}: {'; '.join(parts)}."], exit_code=code)


_BY = {
    Status.COQ: " (in Coq; conv2attn formal checks the proof)",
    Status.ALGEBRA: "",
    Status.INSTANCES: " (argued; instances are checked)",
}
_OTHERWISE = {
    Outcome.FAILS: "not holding",
    Outcome.ERROR: "whose check broke",
    Outcome.TIMED_OUT: "out of time, which a larger --limit may decide",
}


def describe(result: Result) -> list[str]:
    """Formats the result of a claim as lines: what stands behind it, or why it is not shown."""
    claim = result.claim
    said = claim.status if result.holds else result.outcome
    first = f"{said:17} {result.seconds:6.2f} s  {claim.name}: {plain_line(claim.title)}"
    return [first, *(f"    {failure}" for failure in result.failures)]


def _data(result: Result) -> dict[str, Any]:
    from ..proofs.prover.document import fill  # imports sympy

    claim = result.claim
    cases = {check.name: check.cases for check in claim.checks}
    return {name: getattr(claim, name) for name in ("name", "title", "status", "scope", "source")} | {
        "text": fill(claim.text, claim.names),
        "checks": [{"name": v.check, "cases": cases.get(v.check, ""), "outcome": v.outcome} for v in result.verdicts],
        "references": {
            heading: [f"{path}: {', '.join(names)}" for path, names in getattr(claim, heading)]
            for heading in ("justifies", "coq")
        }
        | {"tests": list(claim.tests)},
        **{name: getattr(result, name) for name in ("outcome", "seconds", "failures")},
    }
