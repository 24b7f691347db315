"""What Coq said about the formal theorems, for a terminal and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...terminal.table import Table
from .library import Statement

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
class FormalTheorem:
    """A theorem that the kernel accepted.

    Attributes:
        statement: Where it stands, and what it says.
        axioms: What it rests on, beyond Coq's logic.
    """

    statement: Statement
    axioms: tuple[str, ...]


@dataclass(frozen=True)
class FormalResult:
    """What Coq said.

    Attributes:
        coq: Its version.
        theorems: All theorems, if all files were accepted.
        failures: What was found against them.
        seconds: How long it took.
    """

    coq: str
    theorems: tuple[FormalTheorem, ...]
    failures: tuple[str, ...]
    seconds: float

    @property
    def is_proved(self) -> bool:
        """Whether every theorem was accepted, on the axioms of the real numbers alone."""
        return bool(self.theorems) and not self.failures

    @property
    def exit_code(self) -> int:
        """0 if every theorem was accepted."""
        return 0 if self.is_proved else 1

    def to_json(self) -> dict[str, Any]:
        """The theorems as plain data."""
        theorems = [
            {"name": str(theorem.statement), "statement": theorem.statement.text, "axioms": list(theorem.axioms)}
            for theorem in self.theorems
        ]
        return {
            "coq": self.coq,
            "proved": self.is_proved,
            "theorems": theorems,
            "failures": list(self.failures),
            "seconds": self.seconds,
        }

    def shown(self) -> list[Table | str]:
        """A row for each theorem, with what it rests on, and the verdict."""
        rows = tuple(
            (str(theorem.statement), " ".join(sorted(_SHORT.get(name, name) for name in theorem.axioms)) or "nothing")
            for theorem in self.theorems
        )
        accepted = f"Coq {self.coq} accepts {len(rows)} theorems, and coqchk the library, in {self.seconds:.0f} s."
        verdict = accepted if self.is_proved else "Not proved."
        return [Table(("theorem", "rests on"), rows), *(AXIOMS if rows else ()), *self.failures, verdict]
