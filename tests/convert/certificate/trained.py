"""Layers as training might leave them, beside the convolutions that they came from."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.layer.layer import SelfAttention

CASES: dict[str, dict[str, Any]] = {
    "padded": {"padding": 1},
    "valid": {},
    "strided": {"padding": 1, "stride": 2},
    "dilated": {"padding": 2, "dilation": 2, "padding_mode": "reflect"},
    "grouped": {"padding": "same", "groups": 3, "padding_mode": "circular", "bias": False},
}
ROUNDING = 1e-10  # the layers here are of double precision: 1e5 units in the last place of outputs below 10


def trained(case: str, *, seed: int = 0) -> tuple[nn.Conv2d, SelfAttention]:
    """A convolution, and its attention after what might have been training."""
    torch.manual_seed(seed)
    conv = (
        nn.Conv2d(3, 6, (3, 2), **CASES[case]).double()
        if case == "valid"
        else nn.Conv2d(3, 6, 3, **CASES[case]).double()
    )
    layer = attention_from_conv(conv, alpha=3.0)
    with torch.no_grad():
        layer.set_positions(alpha=torch.empty_like(layer.alpha).uniform_(0.5, 4.0))
        layer.set_positions(centers=layer.centers + torch.randn_like(layer.centers) / 2)
        layer.weight.add_(torch.randn_like(layer.weight) / 20)
        if layer.bias is not None:
            layer.bias.add_(torch.randn_like(layer.bias) / 20)
    return conv, layer
