"""Errata: where a formula or a sentence of the seeds does not hold as printed, and what does."""

from __future__ import annotations

from ...prover.claim import Claim
from . import convolution as errata_convolution
from . import gaussian as errata_gaussian
from . import layer as errata_layer
from . import positions as errata_positions
from . import theorem as errata_theorem
from .erratum import Erratum, claim_of


def errata() -> list[Erratum]:
    """All entries."""
    families = (errata_convolution, errata_layer, errata_positions, errata_gaussian, errata_theorem)
    return [erratum for family in families for erratum in family.entries()]


def claims() -> list[Claim]:
    """Claim 12."""
    return [claim_of(erratum) for erratum in errata()]
