"""What Coq said about the formal theorems, for a terminal and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...terminal.table import Table
from .ask import FormalResult

# How the axioms of the real numbers are called in a table, and what they say.
_SHORT = {
    "ClassicalDedekindReals.sig_not_dec": "S1",
    "ClassicalDedekindReals.sig_forall_dec": "S2",
    "FunctionalExtensionality.functional_extensionality_dep": "F",
    "Classical_Prop.classic": "C",
}
AXIOMS = (
    "The axioms of the standard library's real numbers:",
    "  S1  ClassicalDedekindReals.sig_not_dec: not P or not not P can be decided",
    "  S2  ClassicalDedekindReals.sig_forall_dec: of decidable P, all n have it or a counterexample can be found",
    "  F   FunctionalExtensionality.functional_extensionality_dep: functions with the same values are the same",
    "  C   Classical_Prop.classic: P or not P",
)


@dataclass(frozen=True)
class Formal:
    """What Coq said, to be printed.

    Attributes:
        result: What it said.
    """

    result: FormalResult

    @property
    def exit_code(self) -> int:
        """0 if every theorem was accepted."""
        return 0 if self.result.is_proved else 1

    def to_json(self) -> dict[str, Any]:
        """The theorems as plain data."""
        result = self.result
        theorems = [
            {"name": str(theorem.statement), "statement": theorem.statement.text, "axioms": list(theorem.axioms)}
            for theorem in result.theorems
        ]
        return {
            "coq": result.coq,
            "proved": result.is_proved,
            "theorems": theorems,
            "failures": list(result.failures),
            "seconds": result.seconds,
        }

    def shown(self) -> list[Table | str]:
        """A row for each theorem, with what it rests on, and the verdict."""
        rows = tuple(
            (str(theorem.statement), " ".join(sorted(_SHORT.get(name, name) for name in theorem.axioms)) or "nothing")
            for theorem in self.result.theorems
        )
        axioms = AXIOMS if rows else ()
        return [Table(("theorem", "rests on"), rows), *axioms, *self.result.failures, self._verdict()]

    def _verdict(self) -> str:
        result = self.result
        if not result.is_proved:
            return "Not proved."
        accepted = f"Coq {result.coq} accepts {len(result.theorems)} theorems, and coqchk the library"
        return f"{accepted}, in {result.seconds:.0f} s."
