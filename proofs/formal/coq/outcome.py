"""Coq's answers on the formal theorems, for a terminal and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...terminal.output import Table
from .library import Statement

# What the standard library's real numbers rest on, and the excluded middle, by which it proves that exp grows: the name
# of each axiom in a table, and what it says.
AXIOMS = {
    "ClassicalDedekindReals.sig_not_dec": ("S1", "not P or not not P can be decided"),
    "ClassicalDedekindReals.sig_forall_dec": (
        "S2",
        "of decidable P, all n have it or a counterexample can be found",
    ),
    "FunctionalExtensionality.functional_extensionality_dep": ("F", "functions with the same values are the same"),
    "Classical_Prop.classic": ("C", "P or not P"),
}


class FormalTheorem(NamedTuple):
    """A theorem that the kernel accepted, and the axioms that it uses beyond Coq's logic."""

    statement: Statement
    axioms: tuple[str, ...]


@dataclass(frozen=True)
class FormalResult:
    """Coq's answer.

    Attributes:
        coq: Its version.
        theorems: All theorems, if all files were accepted.
        failures: Objections against them.
        seconds: Its duration.
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
        return int(not self.is_proved)

    def to_json(self) -> dict[str, Any]:
        """The theorems as plain data."""
        theorems = [
            {"name": str(theorem.statement), "statement": theorem.statement.text, "axioms": list(theorem.axioms)}
            for theorem in self.theorems
        ]
        answer = {"coq": self.coq, "proved": self.is_proved, "theorems": theorems}
        return answer | {"failures": list(self.failures), "seconds": self.seconds}

    def shown(self) -> list[Table | str]:
        """A row for each theorem with its axioms, then the axioms, and the verdict."""
        rows = []
        for theorem in self.theorems:
            short = sorted(AXIOMS[name][0] if name in AXIOMS else name for name in theorem.axioms)
            rows.append((str(theorem.statement), " ".join(short) or "nothing"))
        axioms = [f"  {short:2}  {name}: {text}" for name, (short, text) in AXIOMS.items()]
        told = ["The axioms of the standard library's real numbers:", *axioms] if rows else []
        accepted = f"Coq {self.coq} accepts {len(rows)} theorems, and coqchk the library, in {self.seconds:.0f} s."
        verdict = accepted if self.is_proved else "Not proved."
        return [Table(("theorem", "rests on"), tuple(rows)), *told, *self.failures, verdict]
