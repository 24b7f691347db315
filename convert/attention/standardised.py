"""Readers of timm's and mmcv's convolutions, which pad as TensorFlow does or standardise their weights at every call.

Neither is imported: a class is known by its qualified name, and held against its own ``forward`` like any other.
Weight standardisation is Qiao et al., arXiv 1903.10520; the scaled form is Brock et al., arXiv 2101.08692, the adaptive
one is of DetectoRS, arXiv 2006.02334.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..spec import ConvSpec
from .reader import Reader, build_in

_ADAPTED_EPSILON = 1e-5


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
    """Standardises with the very operation of timm's classes, so that every bit is theirs."""
    flat = parts.weight.reshape(1, parts.out_channels, -1)
    normalised = F.batch_norm(flat, None, None, weight=gain, training=True, momentum=0.0, eps=parts.eps)
    return normalised.reshape_as(parts.weight)


def standardised_by_deviation(parts: Any) -> Tensor:
    """The weight with mean 0 and deviation 1 in every output channel, in the order of mmcv's operations."""
    flat = parts.weight.view(len(parts.weight), -1)
    mean, deviation = (each(dim=1, keepdim=True).view(-1, 1, 1, 1) for each in (flat.mean, flat.std))
    weight: Tensor = (parts.weight - mean) / (deviation + parts.eps)
    return weight


def adapted(parts: Any) -> Tensor:
    """The standardised weight, scaled and shifted as the pretrained one was."""
    flat = parts.weight.view(len(parts.weight), -1)
    mean, deviation = flat.mean(dim=1).view(-1, 1, 1, 1), (flat.var(dim=1) + _ADAPTED_EPSILON).sqrt().view(-1, 1, 1, 1)
    weight: Tensor = parts.weight_gamma * ((parts.weight - mean) / deviation) + parts.weight_beta
    return weight


for _name, _reader in {
    "timm.layers.conv2d_same.Conv2dSame": Reader(same_padded),
    "timm.layers.std_conv.StdConv2d": Reader(zero_padded, standardised),
    "timm.layers.std_conv.StdConv2dSame": Reader(perhaps_same_padded, standardised),
    "timm.layers.std_conv.ScaledStdConv2d": Reader(zero_padded, scaled_standardised),
    "timm.layers.std_conv.ScaledStdConv2dSame": Reader(perhaps_same_padded, scaled_standardised),
    "mmcv.cnn.bricks.conv2d_adaptive_padding.Conv2dAdaptivePadding": Reader(same_padded),
    "mmcv.cnn.bricks.conv_ws.ConvWS2d": Reader(zero_padded, standardised_by_deviation),
    "mmcv.cnn.bricks.conv_ws.ConvAWS2d": Reader(zero_padded, adapted),
}.items():
    build_in(_name, _reader)
