"""What Coq said about the formal theorems, for a terminal and for programs."""

from __future__ import annotations

from typing import Any

from ...formal.coq.ask import FormalResult

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


def rows(result: FormalResult) -> list[tuple[str, str]]:
    """A row for each theorem: its name, and what it rests on."""
    return [
        (str(theorem.statement), " ".join(sorted(_SHORT.get(name, name) for name in theorem.axioms)) or "nothing")
        for theorem in result.theorems
    ]


def summary(result: FormalResult) -> str:
    """The verdict in one line."""
    if not result.is_proved:
        return "Not proved."
    return (
        f"Coq {result.coq} accepts {len(result.theorems)} theorems, and coqchk the library, in {result.seconds:.0f} s."
    )


def to_json(result: FormalResult) -> dict[str, Any]:
    """The result as plain data."""
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
