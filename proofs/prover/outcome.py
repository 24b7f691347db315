"""Outcomes of the commands ``prove`` and ``claims``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..terminal.output import Table
from .fields import fill
from .run import Outcome, Result


@dataclass(frozen=True)
class Proved:
    """Results of claims.

    Attributes:
        results: One for each claim.
    """

    results: Sequence[Result]

    @property
    def exit_code(self) -> int:
        """0 if every check holds."""
        return int(not all(result.holds for result in self.results))

    def to_json(self) -> dict[str, Any]:
        """Claims, checks and timings as plain data."""
        return {"holds": not self.exit_code, "claims": list(map(_data, self.results))}

    def shown(self) -> list[Table | str]:
        """A line for each claim, its failures, and the summary."""
        return [*(line for result in self.results for line in describe(result)), self.summary]

    @property
    def summary(self) -> str:
        """Number of checks that hold, and names of the claims with failures."""
        checks = [verdict for result in self.results for verdict in result.verdicts]
        held = sum(verdict.outcome is Outcome.HOLDS for verdict in checks)
        others = [f"{result.claim.name} ({result.outcome})" for result in self.results if not result.holds]
        counted = f"{held} of {len(checks)} checks hold"
        return f"{counted}; not shown: {', '.join(others)}." if others else f"{counted}."


def describe(result: Result) -> list[str]:
    """Formats the result of a claim as lines."""
    claim = result.claim
    first = f"{result.outcome:9} {result.seconds:6.2f} s  {claim.name}: {claim.title} ({claim.status})"
    return [first, *(f"    {failure}" for failure in result.failures)]


def _data(result: Result) -> dict[str, Any]:
    claim = result.claim
    cases = {check.name: check.cases for check in claim.checks}
    return {name: getattr(claim, name) for name in ("name", "title", "status", "scope", "source")} | {
        "text": fill(claim.text, claim.names),
        "checks": [{"name": v.check, "cases": cases.get(v.check, ""), "outcome": v.outcome} for v in result.verdicts],
        "references": {
            heading: [f"{path}: {', '.join(names)}" for path, names in getattr(claim, heading)]
            for heading in ("justifies", "coq", "tests")
        },
        **{name: getattr(result, name) for name in ("outcome", "seconds", "failures")},
    }
