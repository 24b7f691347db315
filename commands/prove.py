"""``conv2attn prove`` proves claims and writes their derivations; ``conv2attn claims`` lists them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..proofs.prover.claim import Status, all_claims, select
from ..proofs.prover.document import document_file, fill, render_markdown, sections
from ..proofs.prover.plain_text import plain_line, plain_text
from ..proofs.prover.run import DEFAULT_LIMIT, Outcome, Result, iter_results
from ..show.text import Table
from .terminal import Done, outcome_json, say, say_document


def prove_claims(names: Sequence[str], *, show: str | None, form: str, out: Path | None, limit: float | None) -> int:
    """Proves claims, prints a line for each as it is decided, and prints or writes their derivations.

    The arguments are the command's options; the result is its exit code, 1 if a check does not hold.
    """
    chosen = select(all_claims(), [*names, *([] if show is None else [show])] or None)
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
    """The outcome: claims, checks and timings, and in one line how many hold and which claims have failures."""
    checks = [verdict for result in results for verdict in result.verdicts]
    held = sum(verdict.outcome is Outcome.HOLDS for verdict in checks)
    others = [f"{result.claim.name} ({result.outcome})" for result in results if not result.holds]
    of_all = "" if held == len(checks) else f" of {len(checks)}"
    claims = f"{len(results)} claim{'s' * (len(results) != 1)}"
    coq = "; Coq proofs are checked by conv2attn formal" if any(r.claim.status is Status.COQ for r in results) else ""
    summary = f"{held}{of_all} check{'s' * (len(checks) != 1)} of {claims} hold{coq}"
    summary += f"; not shown: {', '.join(others)}." if others else "."
    return Done({"holds": not others, "claims": list(map(_data, results))}, [summary], exit_code=int(bool(others)))


def describe(result: Result) -> list[str]:
    """Formats the result of a claim as lines."""
    claim = result.claim
    status = "Coq proof exists" if claim.status is Status.COQ else claim.status  # prove does not run Coq: formal does
    first = f"{result.outcome:9} {result.seconds:6.2f} s  {claim.name}: {plain_line(claim.title)} ({status})"
    return [first, *(f"    {failure}" for failure in result.failures)]


def _data(result: Result) -> dict[str, Any]:
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
