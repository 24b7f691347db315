"""What an erratum is: where a formula or a sentence of the seeds does not hold as printed, and what does.

An entry quotes what is printed, with the premise that it is printed under, and says how far it holds. Conventions,
names, and conditions that are called necessary and are necessary, are no errata.

Every entry has one test that takes a reading of the text. The reading as printed must fail it and the corrected
one must pass it, so an entry can be wrong in either direction, and is then refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from ...prover.old.claim import Check, Claim, Formula, Kind, Step

TRANSCRIBED = "What is quoted is the text as we have it; a transcription may be at fault."


class Source(StrEnum):
    """The texts that are quoted."""

    DRAFT = "draft"
    ARTICLE = "article"
    THEOREM = "theorem (article and talk)"


class Finding(StrEnum):
    """How far what is printed holds."""

    MISPRINT = "It does not hold as printed."
    SCOPE = "It holds in the cases that the text has in mind, and not in all that its words allow."
    OPEN = "It leaves a case open that the theorem needs."


@dataclass(frozen=True)
class Erratum:
    """One place in the seeds.

    Attributes:
        name: Short name; the claim's is "errata-" and this.
        title: For people.
        source: The text.
        place: The section or equation in it.
        quotation: What stands there, and nothing else.
        premise: What the text says or presupposes there, as a sentence.
        finding: How far the quotation holds.
        corrected: What holds.
        reason: Why the quotation does not hold, or where.
        consequence: What the correction means for the construction.
        holds: Says what is wrong with a reading, empty if it holds.
        as_printed: The reading as printed.
        as_corrected: The corrected reading.
        credit: What the author's own notes or other sentences say about it, as sentences; may be empty.
        kind: What the test of the corrected reading covers.
        cases: The instances, for ``Kind.INSTANCES``.
    """

    name: str
    title: str
    source: Source
    place: str
    quotation: Formula
    premise: str
    finding: Finding
    corrected: Formula
    reason: str
    consequence: str
    holds: Callable[[Any], list[str]]
    as_printed: Any
    as_corrected: Any
    credit: str = ""
    kind: Kind = Kind.SYMBOLIC
    cases: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The text and the place in it."""
        return f"{self.source}, {self.place}"


def words(quotation: str, latex: str | None = None) -> Formula:
    """A quotation that is a sentence, or a part of one; with its LaTeX if it has formulas in it."""
    return Formula(rf"\text{{``{quotation}''}}" if latex is None else latex, f'"{quotation}"')


def printed_failures(erratum: Erratum) -> list[str]:
    """Empty if the printed reading fails, as it should."""
    return [] if erratum.holds(erratum.as_printed) else [f"{erratum.where}: what is printed passes the test"]


def corrected_failures(erratum: Erratum) -> list[str]:
    """Empty if the corrected reading holds."""
    return erratum.holds(erratum.as_corrected)


def claim_of(erratum: Erratum) -> Claim:
    """The entry as a claim: the printed reading fails and the corrected one holds."""
    noted = f" {erratum.credit}" if erratum.credit else ""
    return Claim(
        name=f"errata-{erratum.name}",
        title=erratum.title,
        statement=erratum.corrected,
        assumptions=(erratum.premise, TRANSCRIBED),
        steps=(
            Step(erratum.quotation, f"As printed ({erratum.where}). {erratum.finding} {erratum.reason}{noted}"),
            Step(erratum.corrected, f"What holds. {erratum.consequence}"),
        ),
        checks=(
            Check("the reading as printed fails", Kind.EXACT, partial(printed_failures, erratum)),
            Check("the corrected reading holds", erratum.kind, partial(corrected_failures, erratum), erratum.cases),
        ),
        source=erratum.where,
        tests=("proofs.claims.test_errata.test_the_printed_formula_fails_and_the_corrected_one_holds",),
    )
