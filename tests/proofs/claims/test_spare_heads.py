"""Spare heads add what they give through W_out: false variants are rejected."""

from __future__ import annotations

import pytest
import torch

from conv2attn.convert.layer import spare
from conv2attn.proofs.claims.common.sums import Format
from conv2attn.proofs.claims.theorem.spare_heads import (
    BRAIN,
    CHANNELS,
    DOUBLE,
    HALF,
    SINGLE,
    SUMMED,
    WIDTHS,
    heads_at_0_keep_bits,
    identity_with_spare_heads,
    input_limit,
    score_limit,
    spare_heads,
)
from conv2attn.proofs.prover.claim import Claim
from tests.claims import is_rejected

FALSE: dict[str, Claim] = {
    "a W_out that starts at 1": spare_heads(start=1),
    "a head that the sum leaves out": spare_heads(missing=1),
    "a block without its residual": identity_with_spare_heads(residual=0),
    "a second spare head": identity_with_spare_heads(heads=2),
    "heads that are added": heads_at_0_keep_bits(sign=1),
    "a sum of products alone": heads_at_0_keep_bits(start=()),
    "a gradient of +0": heads_at_0_keep_bits(slope=abs),
    "a gradient of any zero": heads_at_0_keep_bits(slope=lambda zero: zero),
    "queries and keys without a limit": heads_at_0_keep_bits(scores=lambda width, of: of.largest),
    "twice the limit of queries and keys": heads_at_0_keep_bits(scores=lambda width, of: 2 * score_limit(width, of)),
    "the same limit for every width": heads_at_0_keep_bits(scores=lambda width, of: score_limit(8, of)),
    "scores that are the same in every order": heads_at_0_keep_bits(roundings=lambda width: 0),
    "pixels without a limit": heads_at_0_keep_bits(inputs=lambda channels, of: of.largest),
    "the same limit of pixels for every number of channels": heads_at_0_keep_bits(
        inputs=lambda channels, of: input_limit(1, of)
    ),
}
DTYPES = {torch.float32: SINGLE, torch.float64: DOUBLE, torch.bfloat16: BRAIN, torch.float16: HALF}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_limits_of_the_code_are_those_of_the_claim(dtype: torch.dtype) -> None:
    of: Format = DTYPES[dtype]
    assert all(spare.input_limit(channels, dtype) == input_limit(channels, of) for channels in CHANNELS)
    assert all(spare.score_limit(width, dtype) == score_limit(width, SUMMED[of]) for width in WIDTHS)


def test_spare_heads_at_0_are_not_rejected() -> None:
    assert not is_rejected(spare_heads())
    assert not is_rejected(identity_with_spare_heads())
    assert not is_rejected(heads_at_0_keep_bits())
