"""Every printed formula fails, every corrected one holds, and an erratum that errs in either direction is refused."""

from __future__ import annotations

import inspect

from conv2attn.proofs.claims import errata
from conv2attn.proofs.claims.errata.passages import TYPOS, errata_draft
from conv2attn.proofs.prover.claim import Claim, all_claims
from tests.claims import rejecting_checks

ERRATA = all_claims([f"{errata.__name__}.{module}" for module in errata.ORDER])


def false_variants(erratum: Claim) -> dict[str, Claim]:
    """The erratum with one of its readings in the place of the other: each way, for each passage."""
    if erratum is errata_draft:
        return {
            f"{what}: {field}": erratum(typos={**TYPOS, what: typo._replace(**{field: other})})
            for what, typo in TYPOS.items()
            for field, other in {"printed": typo.corrected, "corrected": typo.printed}.items()
        }
    readings = inspect.signature(erratum.body).parameters
    swapped = {"printed": "corrected", "corrected": "printed"}
    return {f"{erratum.name}: {name}": erratum(**{name: readings[other].default}) for name, other in swapped.items()}


FALSE = {name: variant for erratum in ERRATA for name, variant in false_variants(erratum).items()}


def test_a_false_erratum_is_rejected() -> None:
    for erratum in FALSE.values():
        assert len(rejecting_checks(erratum)) == 1
