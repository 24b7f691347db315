"""Queries to Coq, and the reading of its answers. Whatever is not understood counts as an objection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from .library import LIBRARY, Statement

CLOSED = "Closed under the global context"

_SECTION = re.compile(r"^\* (.+?):(.*?)(?=^\* |\Z)", re.MULTILINE | re.DOTALL)
_PREDICATIVE = "Theory"  # the one section of coqchk's summary that is never empty
_FRACTION = re.compile(r"(\d+)\s*#\s*(\d+)")


def assumption_queries(found: Sequence[Statement]) -> str:
    """A file that writes the axioms of every theorem to MODULE.NAME.out."""
    modules = " ".join(dict.fromkeys(statement.module for statement in found))
    lines = [f'Redirect "{statement}" Print Assumptions {LIBRARY}.{statement}.' for statement in found]
    return "\n".join([f"From {LIBRARY} Require {modules}.", *lines]) + "\n"


def axioms_of(printed: str) -> tuple[str, ...]:
    """The axioms that Print Assumptions lists; a line of another kind is listed as it is."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if lines == [CLOSED]:
        return ()
    if not lines or lines[0] != "Axioms:":
        return (f"not understood: {printed.strip()!r}",)
    named = [line for line in lines[1:] if not line[0].isspace()]
    return tuple(re.split(r"\s*:\s*|\s+", line)[0] if re.match(r"[\w.']+(\s|$)", line) else line for line in named)


def summary_objections(printed: str) -> list[str]:
    """Objections in the summary of coqchk -o against a library: an axiom of its own, or a skipped check.

    It lists all axioms of everything that is loaded, and the sealed definitions of the standard library among them;
    what a theorem uses of those is for ``axioms_of`` to say.
    """
    sections = dict(_SECTION.findall(printed.partition("CONTEXT SUMMARY")[2]))
    if _PREDICATIVE not in sections or "Axioms" not in sections:
        return [f"coqchk: its answer was not understood: {printed.strip()[-200:]!r}"]
    del sections[_PREDICATIVE]
    axioms = [name for name in sections.pop("Axioms").split() if name != "<none>"]
    found = [f"coqchk: the axiom {name}" for name in axioms if not name.startswith("Coq.")]
    return found + [
        f"coqchk: {name}: {' '.join(text.split())}" for name, text in sections.items() if "<none>" not in text
    ]


def evaluation_query(points: Sequence[tuple[Fraction, int]]) -> str:
    """A file that writes tau_lower and tau_upper of Enclosure.v at these q and numbers of terms to values.out."""
    terms = [
        f"({bound} ({q.numerator} # {q.denominator}) {n})" for q, n in points for bound in ("tau_lower", "tau_upper")
    ]
    needed = f"From Coq Require Import QArith List.\nImport ListNotations.\nFrom {LIBRARY} Require Import Enclosure."
    return f'{needed}\nRedirect "values" Eval vm_compute in [{"; ".join(terms)}].\n'


def fractions_of(printed: str) -> list[Fraction]:
    """The fractions a # b of an answer, in order."""
    return [Fraction(int(numerator), int(denominator)) for numerator, denominator in _FRACTION.findall(printed)]
