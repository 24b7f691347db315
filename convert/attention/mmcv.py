"""Readers of mmcv's convolutions, which pad as TensorFlow does or standardise their weights at every call.

mmcv is not imported: a class is known by its qualified name, and held against its own ``forward`` like any other.
Weight standardisation is Qiao et al., arXiv 1903.10520; the adaptive form is of DetectoRS, arXiv 2006.02334.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .reader import Reader, build_in
from .timm import same_padded, zero_padded

_EPSILON = 1e-5


def standardised(parts: Any) -> Tensor:
    """The weight with mean 0 and deviation 1 in every output channel, in the order of mmcv's operations."""
    flat = parts.weight.view(len(parts.weight), -1)
    mean, deviation = (each(dim=1, keepdim=True).view(-1, 1, 1, 1) for each in (flat.mean, flat.std))
    weight: Tensor = (parts.weight - mean) / (deviation + parts.eps)
    return weight


def adapted(parts: Any) -> Tensor:
    """The standardised weight, scaled and shifted as the pretrained one was."""
    flat = parts.weight.view(len(parts.weight), -1)
    mean, deviation = flat.mean(dim=1).view(-1, 1, 1, 1), (flat.var(dim=1) + _EPSILON).sqrt().view(-1, 1, 1, 1)
    weight: Tensor = parts.weight_gamma * ((parts.weight - mean) / deviation) + parts.weight_beta
    return weight


for _name, _reader in {
    "conv2d_adaptive_padding.Conv2dAdaptivePadding": Reader(same_padded),
    "conv_ws.ConvWS2d": Reader(zero_padded, standardised),
    "conv_ws.ConvAWS2d": Reader(zero_padded, adapted),
}.items():
    build_in(f"mmcv.cnn.bricks.{_name}", _reader)
