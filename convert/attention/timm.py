"""Readers of timm's convolutions, which pad as TensorFlow does or standardise their weights at every call.

timm is not imported: a class is known by its qualified name, and held against its own ``forward`` like any other.
Weight standardisation is Qiao et al., arXiv 1903.10520; the scaled form is Brock et al., arXiv 2101.08692.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..spec import ConvSpec
from .reader import Reader, build_in


def zero_padded(conv: Any) -> ConvSpec:
    """The geometry of a class that pads with zeros, whatever its padding mode says."""
    return replace(ConvSpec.from_conv(conv), padding_mode="zeros")


def same_padded(conv: Any) -> ConvSpec:
    """The geometry of a class that pads as TensorFlow's "SAME" does."""
    return replace(zero_padded(conv), padding="same_upper")


def perhaps_same_padded(conv: Any) -> ConvSpec:
    """As ``same_padded`` where the instance says so; else its padding is a number."""
    return same_padded(conv) if conv.same_pad else zero_padded(conv)


def standardised(parts: Any) -> Tensor:
    """The weight with mean 0 and variance 1 in every output channel."""
    return _standardised(parts, None)


def scaled_standardised(parts: Any) -> Tensor:
    """The standardised weight, times a learned gain for every output channel."""
    return _standardised(parts, (parts.gain * parts.scale).view(-1))


def _standardised(parts: Any, gain: Tensor | None) -> Tensor:
    """By the very operation of timm's classes, so that every bit is theirs."""
    flat = parts.weight.reshape(1, parts.out_channels, -1)
    normalised = F.batch_norm(flat, None, None, weight=gain, training=True, momentum=0.0, eps=parts.eps)
    return normalised.reshape_as(parts.weight)


for _name, _reader in {
    "conv2d_same.Conv2dSame": Reader(same_padded),
    "std_conv.StdConv2d": Reader(zero_padded, standardised),
    "std_conv.StdConv2dSame": Reader(perhaps_same_padded, standardised),
    "std_conv.ScaledStdConv2d": Reader(zero_padded, scaled_standardised),
    "std_conv.ScaledStdConv2dSame": Reader(perhaps_same_padded, scaled_standardised),
}.items():
    build_in(f"timm.layers.{_name}", _reader)
