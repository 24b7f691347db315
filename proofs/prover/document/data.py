"""The document as one JSON object, for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..claim import Claim
from ..prose import plain
from ..runner import Result
from .wording import verdict

VERSION = 1


def render_json(results: Sequence[Result]) -> str:
    """The document as JSON."""
    claims = [_result(result) for result in results]
    data = {"version": VERSION, "command": "prove", "proved": all(r.is_proved for r in results), "claims": claims}
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _result(result: Result) -> dict[str, Any]:
    checks = [
        {
            "name": plain(check.name),
            "kind": str(check.kind),
            "cases": [*map(plain, check.cases)],
            "verdict": verdict(result, check),
        }
        for check in result.claim.checks
    ]
    outcome = {"status": str(result.status), "seconds": result.seconds, "failures": list(result.failures)}
    return _claim(result.claim) | {"checks": checks} | outcome


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "name": claim.name,
        "title": plain(claim.title),
        "statement": vars(claim.statement),
        "assumptions": [*map(plain, claim.assumptions)],
        "steps": [{"formula": vars(step.formula), "rule": plain(step.rule)} for step in claim.steps],
        "justifies": list(claim.justifies),
        "references": {heading: list(items) for heading, items in claim.references.items()},
        "source": plain(claim.source),
    }
