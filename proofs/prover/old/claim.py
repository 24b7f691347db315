"""What a proof is: a statement, the steps that lead to it, and the checks that a machine runs.

A step is something a reader follows; a check is something sympy decides. No check returns a verdict that was
written by hand: it computes, and says what it computed.

Titles, sources, assumptions, rules, names of checks and cases are texts with marks: dollar signs around mathematics,
``$alpha > 0$``, and backquotes around code and names of claims (``prose.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a check covers."""

    SYMBOLIC = "symbolic"  # for all values of the symbols
    EXACT = "exact"  # by exact rational or interval arithmetic
    INSTANCES = "instances"  # for the listed cases; the general argument stands in the proof's steps


@dataclass(frozen=True)
class Formula:
    """A formula for two kinds of reader.

    Attributes:
        latex: Without dollar signs.
        text: Plain text.
    """

    latex: str
    text: str


@dataclass(frozen=True)
class Step:
    """One step of a derivation.

    Attributes:
        formula: What holds now.
        rule: Why it follows from what came before.
    """

    formula: Formula
    rule: str


@dataclass(frozen=True)
class Check:
    """One decision by machine.

    Attributes:
        name: What is checked, as a sentence.
        kind: What the check covers.
        run: Returns the cases in which the claim fails, empty if it holds; each as text with what was computed.
        cases: The instances covered, for ``Kind.INSTANCES``.
    """

    name: str
    kind: Kind
    run: Callable[[], list[str]]
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A claim with its proof.

    Attributes:
        name: Short name for the command line, like "encoding-identity".
        title: For people.
        statement: The claim.
        assumptions: What it needs, a sentence each.
        steps: The derivation.
        checks: What a machine decides; the claim is proved if none of them finds a failure.
        justifies: Dotted names of the functions in ``conv2attn.convert`` that rely on it.
        source: Where the seeds state it, like "draft, eq. (9)-(11)", or "new".
        tests: Tests that hold it, or what it says of the code, at random points: dotted names from ``tests`` on.
        formal: Its theorems in Coq, MODULE.NAME for ``proofs/formal/MODULE.v``; empty if Coq has not been asked.
        derived_in: The file that makes it, which ``registry.py`` knows.
    """

    name: str
    title: str
    statement: Formula
    assumptions: tuple[str, ...]
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]
    justifies: tuple[str, ...] = field(default=())
    source: str = "new"
    tests: tuple[str, ...] = ()
    formal: tuple[str, ...] = ()
    derived_in: str = ""

    @property
    def references(self) -> dict[str, tuple[str, ...]]:
        """The files that treat it, and what to look for in them, by heading."""
        return {
            "Derived in": (self.derived_in,) if self.derived_in else (),
            "In Coq": tuple("proofs/formal/{}.v: {}".format(*name.split(".")) for name in self.formal),
            "Tests": tuple(map(_place, self.tests)),
        }


def _place(test: str) -> str:
    """A test as pytest names it."""
    module, _, name = test.rpartition(".")
    return f"tests/{module.replace('.', '/')}.py::{name}"
