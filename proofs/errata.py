"""Errata: where a formula or a sentence of the seeds does not hold as printed, and what does."""

from __future__ import annotations

from conv2attn.proofs import (
    errata_convolution,
    errata_gaussian,
    errata_layer,
    errata_positions,
    errata_theorem,
)
from conv2attn.proofs.claim import Claim
from conv2attn.proofs.erratum import Erratum, claim_of


def errata() -> list[Erratum]:
    """All entries."""
    families = (errata_convolution, errata_layer, errata_positions, errata_gaussian, errata_theorem)
    return [erratum for family in families for erratum in family.entries()]


def claims() -> list[Claim]:
    """Claim 12."""
    return [claim_of(erratum) for erratum in errata()]
