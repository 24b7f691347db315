"""Readers of the convolutions that timm, mmcv, transformers, diffusers and others define themselves.

None is imported: a class is known by its qualified name, and held against its own ``forward`` like any other. Those
that keep or take earlier inputs, whose input is [batch, length, channels], or which pad in two modes at once, have no
reader and are refused by name (docs/architectures.md lists them).

Weight standardisation is Qiao et al., arXiv 1903.10520; the scaled form is Brock et al., arXiv 2101.08692, the adaptive
one is of DetectoRS, arXiv 2006.02334.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..errors import GeometryError
from ..spec import ConvSpec
from .readers import Reader, build_in

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


def standardised(parts: Any, gain: Tensor | None = None) -> Tensor:
    """The weight with mean 0 and variance 1 in every output channel, by timm's own operation: every bit is theirs."""
    flat = parts.weight.reshape(1, parts.out_channels, -1)
    normalised = F.batch_norm(flat, None, None, weight=gain, training=True, momentum=0.0, eps=parts.eps)
    return normalised.reshape_as(parts.weight)


def scaled_standardised(parts: Any) -> Tensor:
    """The standardised weight, times a learned gain for every output channel."""
    return standardised(parts, (parts.gain * parts.scale).view(-1))


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


def in_parts(conv: Any) -> ConvSpec:
    """The geometry of a class that convolves a long film in parts; each part overlaps the one before by K - 1 planes.

    The parts together are the whole where nothing is padded, stepped over or spread along the time: plane t of the
    output needs the planes t to t + K - 1 of the input, and each part has them.

    Raises:
        GeometryError: The parts would not be the whole.
    """
    spec = ConvSpec.from_conv(conv)
    if not (spec.padding != "same" and spec.pads[0] == (0, 0) and spec.stride[0] == 1 and spec.dilation[0] == 1):
        raise GeometryError("it convolves a long film in parts, which are not the whole with this geometry along time")
    return spec


def zeros_around(conv: Any) -> ConvSpec:
    """The geometry of Cosmos' class where it adds zeros in space, and nothing in time.

    Raises:
        GeometryError: It copies the first plane, or pads in another mode.
    """
    columns, _, rows, _ = conv.spatial_pad
    if conv.temporal_pad or (conv.pad_mode != "constant" and (rows or columns)):
        raise GeometryError(
            f"it copies {conv.temporal_pad} planes and pads with {conv.pad_mode!r}, which no layer does"
        )
    return replace(ConvSpec.from_conv(conv), padding=(0, rows, columns))


def zeros_before(conv: Any) -> ConvSpec:
    """The geometry of MiniMax's class where space, too, is padded with zeros.

    Raises:
        GeometryError: Space is padded in another mode.
    """
    space, time = conv.spatial_padding, conv.temporal_padding
    if space and conv.spatial_padding_mode != "constant":
        raise GeometryError(
            f"it pads space with {conv.spatial_padding_mode!r} and time with zeros, which no layer does"
        )
    return replace(ConvSpec.from_conv(conv), padding=((time, 0), (space, space), (space, space)))


for _name, _reader in {
    "timm.layers.conv2d_same.Conv2dSame": Reader(same_padded),
    "timm.layers.std_conv.StdConv2d": Reader(zero_padded, standardised),
    "timm.layers.std_conv.StdConv2dSame": Reader(perhaps_same_padded, standardised),
    "timm.layers.std_conv.ScaledStdConv2d": Reader(zero_padded, scaled_standardised),
    "timm.layers.std_conv.ScaledStdConv2dSame": Reader(perhaps_same_padded, scaled_standardised),
    "mmcv.cnn.bricks.conv2d_adaptive_padding.Conv2dAdaptivePadding": Reader(same_padded),
    "mmcv.cnn.bricks.conv_ws.ConvWS2d": Reader(zero_padded, standardised_by_deviation),
    "mmcv.cnn.bricks.conv_ws.ConvAWS2d": Reader(zero_padded, adapted),
    "transformers.models.align.modeling_align.AlignVisionDepthwiseConv2d": Reader(),
    "transformers.models.bit.modeling_bit.WeightStandardizedConv2d": Reader(dynamically_padded, standardised),
    "transformers.models.efficientnet.modeling_efficientnet.EfficientNetDepthwiseConv2d": Reader(),
    "transformers.models.gemma4.modeling_gemma4.Gemma4AudioCausalConv1d": Reader(causal),
    "transformers.models.perceiver.modeling_perceiver.Conv2dSamePadding": Reader(evenly_padded),
    "diffusers.models.autoencoders.autoencoder_kandinsky6_sr.Kandinsky6SRSafeConv3d": Reader(in_parts),
    "diffusers.models.autoencoders.autoencoder_kl_cogvideox.CogVideoXSafeConv3d": Reader(in_parts),
    "diffusers.models.autoencoders.autoencoder_kl_cosmos.CosmosCausalConv3d": Reader(zeros_around),
    "diffusers.models.autoencoders.autoencoder_kl_minimax_h3.MiniMaxH3VideoCausalConv3d": Reader(zeros_before),
    "diffusers.models.lora.LoRACompatibleConv": Reader(),
    # Those that change the constructor, and compute what their parents do.
    "torchvision.models.video.resnet.Conv3DSimple": Reader(),
    "torchvision.models.video.resnet.Conv3DNoTemporal": Reader(),
    "ultralytics.nn.modules.conv.DWConvTranspose2d": Reader(),
    "mmcv.cnn.bricks.wrappers.Conv2d": Reader(),
    "mmcv.cnn.bricks.wrappers.Conv3d": Reader(),
    "mmcv.cnn.bricks.wrappers.ConvTranspose2d": Reader(),
    "mmcv.cnn.bricks.wrappers.ConvTranspose3d": Reader(),
}.items():
    build_in(_name, _reader)
