"""Readers of the convolutions that transformers defines itself.

transformers is not imported: a class is known by its qualified name, and held against its own ``forward`` like any
other. Classes that take a cache of earlier inputs, or whose input is [batch, length, channels], have no reader and are
refused by name (docs/architectures.md lists them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..spec import ConvSpec
from .reader import Reader, build_in
from .timm import same_padded, standardised, zero_padded


def dynamically_padded(conv: Any) -> ConvSpec:
    """The geometry of BiT's class, which pads as TensorFlow's "SAME" does where it holds a ``pad``."""
    return zero_padded(conv) if conv.pad is None else same_padded(conv)


def causal(conv: Any) -> ConvSpec:
    """The geometry of a class that pads only before a sequence, by d (K - 1) + 1 - s."""
    spec = zero_padded(conv)
    return replace(spec, padding=((spec.reach[0] + 1 - spec.stride[0], 0),))


def evenly_padded(conv: Any) -> ConvSpec:
    """The geometry of Perceiver's class, which pads by K / 2 after each axis and one less before it if K is even."""
    spec = zero_padded(conv)
    return replace(spec, padding=tuple((k // 2 + k % 2 - 1, k // 2) for k in spec.kernel_size))


for _name, _reader in {
    "align.modeling_align.AlignVisionDepthwiseConv2d": Reader(),
    "bit.modeling_bit.WeightStandardizedConv2d": Reader(dynamically_padded, standardised),
    "efficientnet.modeling_efficientnet.EfficientNetDepthwiseConv2d": Reader(),
    "gemma4.modeling_gemma4.Gemma4AudioCausalConv1d": Reader(causal),
    "perceiver.modeling_perceiver.Conv2dSamePadding": Reader(evenly_padded),
}.items():
    build_in(f"transformers.models.{_name}", _reader)
