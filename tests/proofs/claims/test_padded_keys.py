"""Keys that see the image alone cannot make the zero-padded convolution."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.proofs.claims.theorem.padded_keys import (
    CORNER,
    MIDDLE,
    box_failures,
    constant_failures,
    error_failures,
    positioned_failures,
)

FALSE_VARIANTS = {
    "weights that add up to 2": partial(constant_failures, total=2),
    "five taps in the corner": partial(box_failures, corner=5),
    "eight taps in the middle": partial(box_failures, middle=8),
    "padding with ones": partial(box_failures, mode="replicate"),
    "an error of 3": partial(error_failures, error=Fraction(3)),
    "values that see the content alone": partial(positioned_failures, value=(1, 0)),
    "an error of 2": partial(error_failures, error=Fraction(2)),
}


def test_attention_over_the_pixels_alone_is_constant_where_the_image_is() -> None:
    padded = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    alone = nn.Conv2d(1, 1, 3, bias=False)
    with torch.no_grad():
        padded.weight.fill_(1)
        alone.weight.fill_(1)
    ones = torch.ones(1, 1, 3, 3)
    outputs = attention_from_conv(padded)(ones).detach()[0, 0]
    assert (float(outputs[0, 0]), float(outputs[1, 1])) == (CORNER, MIDDLE)
    everywhere = attention_from_conv(alone)(torch.ones(1, 1, 7, 7))
    assert bool((everywhere == MIDDLE).all())
