"""What an erratum is: where a formula or a sentence of the seeds does not hold as printed, and what does.

Every entry has one test that takes a reading of the text. The reading as printed must fail it and the corrected
one must pass it, so an entry can be wrong in either direction, and is then refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from conv2attn.proofs.claim import Check, Claim, Formula, Kind, Step


@dataclass(frozen=True)
class Erratum:
    """One place in the seeds.

    Attributes:
        name: Short name; the claim's is "errata-" and this.
        title: For people.
        where: The text and the place in it.
        printed: What stands there.
        corrected: What holds.
        reason: Why the printed one fails.
        consequence: What the correction means for the construction.
        holds: Says what is wrong with a reading, empty if it holds.
        as_printed: The reading as printed.
        as_corrected: The corrected reading.
        kind: What the test of the corrected reading covers.
        cases: The instances, for ``Kind.INSTANCES``.
    """

    name: str
    title: str
    where: str
    printed: Formula
    corrected: Formula
    reason: str
    consequence: str
    holds: Callable[[Any], list[str]]
    as_printed: Any
    as_corrected: Any
    kind: Kind = Kind.SYMBOLIC
    cases: tuple[str, ...] = ()


def printed_failures(erratum: Erratum) -> list[str]:
    """Empty if the printed reading fails, as it should."""
    return [] if erratum.holds(erratum.as_printed) else [f"{erratum.where}: the printed formula passes the test"]


def corrected_failures(erratum: Erratum) -> list[str]:
    """Empty if the corrected reading holds."""
    return erratum.holds(erratum.as_corrected)


def claim_of(erratum: Erratum) -> Claim:
    """The entry as a claim: the printed formula fails and the corrected one holds."""
    return Claim(
        name=f"errata-{erratum.name}",
        title=erratum.title,
        statement=erratum.corrected,
        assumptions=("The symbols are those of the source.",),
        steps=(
            Step(erratum.printed, f"As printed ({erratum.where}). {erratum.reason}"),
            Step(erratum.corrected, f"Corrected. {erratum.consequence}"),
        ),
        checks=(
            Check("the formula as printed fails", Kind.EXACT, partial(printed_failures, erratum)),
            Check("the corrected formula holds", erratum.kind, partial(corrected_failures, erratum), erratum.cases),
        ),
        source=erratum.where,
    )
