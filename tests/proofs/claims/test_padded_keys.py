"""Keys that see the image alone cannot make the zero-padded convolution."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.proofs.claims.theorem.padded_keys import CORNER, MIDDLE, padded_keys

FALSE = {
    "weights that add up to 2": padded_keys(total=2),
    "five taps in the corner": padded_keys(corner=5),
    "eight taps in the middle": padded_keys(middle=8),
    "padding with ones": padded_keys(mode="replicate"),
    "an error of 3": padded_keys(error=Fraction(3)),
    "values that see the content alone": padded_keys(value=(1, 0)),
    "an error of 2": padded_keys(error=Fraction(2)),
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
