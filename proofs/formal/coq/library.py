"""The theorems that are stated in Coq, in ``proofs/formal``, as a reader finds them there, and Coq's answers on them.

Results are called ``Theorem`` or ``Corollary``; a ``Lemma`` is a step on the way, an ``Example`` shows what a
definition means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...terminal.output import Table

FOLDER = Path(__file__).parents[1]
PROJECT = "_CoqProject"  # lists the files, each after those it needs
LIBRARY = "Conv2Attn"

_STATEMENT = re.compile(r"^ *(?:Theorem|Corollary) ([\w']+)(.*?)\.\n *Proof\.", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)
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


@dataclass(frozen=True)
class Statement:
    """A theorem as it stands in its file."""

    module: str  # the file without its suffix, like "Theorem1"
    name: str
    source: str  # its statement, as its file has it

    @property
    def text(self) -> str:
        """Its statement, on one line."""
        return " ".join(self.source.split())

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def sources(folder: Path = FOLDER) -> list[Path]:
    """The files of the library in the order in which they are compiled."""
    lines = (folder / PROJECT).read_text(encoding="utf-8").split()
    return [folder / line for line in lines if line.endswith(".v")]


def statements(folder: Path = FOLDER) -> list[Statement]:
    """The theorems of the library, in the order of its files."""
    return [
        Statement(path.stem, name, text)
        for path in sources(folder)
        for name, text in _STATEMENT.findall(_COMMENT.sub("", path.read_text(encoding="utf-8")))
    ]


class FormalTheorem(NamedTuple):
    """A theorem that the kernel accepted, and the axioms that it uses beyond Coq's logic."""

    statement: Statement
    axioms: tuple[str, ...]


@dataclass(frozen=True)
class FormalResult:
    """Coq's answer."""

    coq: str  # its version
    theorems: tuple[FormalTheorem, ...]  # all of them, if all files were accepted
    failures: tuple[str, ...]  # objections against them
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
