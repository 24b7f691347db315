"""Convolutions whose geometry a file itself describes, so that they can be converted without the network's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....errors import GeometryError
from ....padded import has_class
from ....spec import ConvSpec
from .stored import StoredTensor

_MOST_AXES = 3


@dataclass(frozen=True)
class StoredConvolution:
    """A convolution in a file.

    Attributes:
        weight: Key of its weight among the file's tensors.
        bias: Key of its bias, or None.
        spec: Its geometry, or None if no class of convolutions has it.
        problem: Why ``spec`` is None.
        note: What the user should know of its weights, or None.
        original: What the file calls the layer, or None if that is its name.
    """

    weight: str
    bias: str | None
    spec: ConvSpec | None
    problem: str | None = None
    note: str | None = field(default=None, compare=False)
    original: str | None = field(default=None, compare=False)

    @classmethod
    def refused(cls, problem: str) -> StoredConvolution:
        """A convolution that cannot be converted."""
        return cls("", None, None, problem)


def describe(
    tensors: Mapping[str, object],
    weight: str | None,
    bias: str | None,
    geometry: Mapping[str, object],
    *,
    uneven: bool = False,
) -> StoredConvolution:
    """A convolution by what a file says of it.

    Args:
        tensors: The file's tensors.
        weight: Key of the weight, [out_channels, in_channels / groups, *kernel_size]; of a transposed convolution
            [in_channels, out_channels / groups, *kernel_size].
        bias: Key of the bias, [out_channels], or None.
        geometry: Stride, dilation, padding, padding_mode, groups, transposed and output_padding, as ``ConvSpec`` takes
            them; others are its defaults. Channels and kernel are the weight's.
        uneven: Whether the file means what it says where no convolution of PyTorch has the padding (``padded.py``).
    """
    values = tensors.get(weight) if weight is not None else None
    if weight is None or not isinstance(values, StoredTensor) or values.flaw() is not None:
        return StoredConvolution.refused("its weight is computed or not a plain tensor")
    axes = len(values.shape) - 2
    if not 1 <= axes <= _MOST_AXES:
        return StoredConvolution.refused(f"its weight has {len(values.shape)} dimensions, which no convolution has")
    groups = geometry.get("groups", 1)
    if type(groups) is not int:
        return StoredConvolution.refused("its groups are not a number")
    first, second, *kernel = values.shape
    ends = (first, second * groups) if geometry.get("transposed") else (second * groups, first)
    channels = {"in_channels": ends[0], "out_channels": ends[1], "kernel_size": kernel}
    try:
        spec = ConvSpec.from_json({**geometry, **channels, "bias": bias is not None})
    except GeometryError as error:
        return StoredConvolution.refused(str(error))
    if spec.is_uneven and not (uneven and has_class(spec)):
        return StoredConvolution.refused("its padding is one that no convolution of PyTorch has")
    out_channels = spec.out_channels
    if bias is not None and not _is_bias(tensors.get(bias), out_channels):
        return StoredConvolution.refused("its bias is computed or not one number a channel")
    return StoredConvolution(weight, bias, spec)


def add_layer(
    layers: dict[str, StoredConvolution], name: str, convolution: StoredConvolution, *, otherwise: str
) -> None:
    """Adds a convolution under its weight's name; under another, if one of another geometry has the same weight."""
    if layers.setdefault(name, convolution) != convolution:
        layers[otherwise] = convolution


def layer_name(weight: str) -> str:
    """The layer that a weight's key belongs to: all before its last part, if that is "weight"."""
    return "" if weight == "weight" else weight.removesuffix(".weight")


def _is_bias(values: object, channels: int) -> bool:
    return isinstance(values, StoredTensor) and values.flaw() is None and values.shape == (channels,)
