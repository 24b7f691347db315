"""Sharper than the theorem: fewer dimensions of the encoding, smaller heads, fewer heads."""

from __future__ import annotations

from ...prover.claim import Claim
from . import encoding_dimension, head_count, head_dimension


def claims() -> list[Claim]:
    """Claim 11: D_p, D_h and N_h."""
    return [*encoding_dimension.claims(), *head_dimension.claims(), *head_count.claims()]
