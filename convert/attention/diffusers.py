"""Readers of the convolutions that diffusers defines itself.

diffusers is not imported: a class is known by its qualified name, and held against its own ``forward`` like any other.
Classes that keep or take earlier frames, or copy the first frame while the borders are zeros, have no reader and are
refused by name (docs/architectures.md lists them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import GeometryError
from ..spec import ConvSpec
from .reader import Reader, build_in


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
    "autoencoders.autoencoder_kandinsky6_sr.Kandinsky6SRSafeConv3d": Reader(in_parts),
    "autoencoders.autoencoder_kl_cogvideox.CogVideoXSafeConv3d": Reader(in_parts),
    "autoencoders.autoencoder_kl_cosmos.CosmosCausalConv3d": Reader(zeros_around),
    "autoencoders.autoencoder_kl_minimax_h3.MiniMaxH3VideoCausalConv3d": Reader(zeros_before),
    "lora.LoRACompatibleConv": Reader(),
}.items():
    build_in(f"diffusers.models.{_name}", _reader)
