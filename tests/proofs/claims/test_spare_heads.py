"""Spare heads add what they give through W_out: false variants are rejected."""

from __future__ import annotations

from conv2attn.proofs.claims.theorem.spare_heads import identity_with_spare_heads, spare_heads
from conv2attn.proofs.prover.claim import Claim
from tests.claims import is_rejected

FALSE: dict[str, Claim] = {
    "a W_out that starts at 1": spare_heads(start=1),
    "a head that the sum leaves out": spare_heads(missing=1),
    "a block without its residual": identity_with_spare_heads(residual=0),
    "a second spare head": identity_with_spare_heads(heads=2),
}


def test_spare_heads_at_0_are_not_rejected() -> None:
    assert not is_rejected(spare_heads())
    assert not is_rejected(identity_with_spare_heads())
