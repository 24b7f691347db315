"""Convolutions whose geometry a file itself describes, so that they can be converted without the network's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...errors import GeometryError
from ...padded import has_class
from ...spec import ConvSpec

_MOST_AXES = 3


@dataclass(frozen=True)
class DescribedConvolution:
    """A convolution that a file describes.

    Attributes:
        weight: Key of its weight among the file's tensors.
        bias: Key of its bias, or None.
        spec: Its geometry, or None if no class of convolutions has it.
        problem: Why ``spec`` is None.
        note: Remark about its weights for the user, or None.
        original: The layer's name in the file, or None if it is the name used here.
    """

    weight: str
    bias: str | None
    spec: ConvSpec | None
    problem: str | None = None
    note: str | None = field(default=None, compare=False)
    original: str | None = field(default=None, compare=False)

    @classmethod
    def refused(cls, problem: str) -> DescribedConvolution:
        """A convolution that cannot be converted."""
        return cls("", None, None, problem)


def describe(
    tensors: Mapping[str, Tensor],
    weight: str | None,
    bias: str | None,
    geometry: Mapping[str, object],
    *,
    uneven: bool = False,
) -> DescribedConvolution:
    """Describes a convolution by its tensors and its options.

    Args:
        tensors: The file's tensors.
        weight: Key of the weight, [out_channels, in_channels / groups, *kernel_size]; of a transposed convolution
            [in_channels, out_channels / groups, *kernel_size].
        bias: Key of the bias, [out_channels], or None.
        geometry: Stride, dilation, padding, padding_mode, groups, transposed and output_padding, as ``ConvSpec`` takes
            them; those left out have its defaults. Channels and kernel are the weight's.
        uneven: Accept padding that differs at the two ends of an axis (``padded.py``).
    """
    values = None if weight is None else tensors.get(weight)
    if weight is None or values is None:
        return DescribedConvolution.refused("its weight is computed or not a plain tensor")
    axes = values.ndim - 2
    if not 1 <= axes <= _MOST_AXES:
        return DescribedConvolution.refused(f"its weight has {values.ndim} dimensions, which no convolution has")
    groups = geometry.get("groups", 1)
    if type(groups) is not int:
        return DescribedConvolution.refused("its groups are not a number")
    first, second, *kernel = values.shape
    ends = (first, second * groups) if geometry.get("transposed") else (second * groups, first)
    channels = {"in_channels": ends[0], "out_channels": ends[1], "kernel_size": kernel}
    try:
        spec = ConvSpec.from_json({**geometry, **channels, "bias": bias is not None})
    except GeometryError as error:
        return DescribedConvolution.refused(str(error))
    if spec.is_uneven and not (uneven and has_class(spec)):
        return DescribedConvolution.refused("its padding is one that no convolution of PyTorch has")
    if bias is not None and (bias not in tensors or tensors[bias].shape != (spec.out_channels,)):
        return DescribedConvolution.refused("its bias is computed or not one number a channel")
    return DescribedConvolution(weight, bias, spec)


def add_layer(
    layers: dict[str, DescribedConvolution], name: str, convolution: DescribedConvolution, *, otherwise: str
) -> None:
    """Adds a convolution under its weight's name, or under another if that name has a different geometry."""
    if layers.setdefault(name, convolution) != convolution:
        layers[otherwise] = convolution


def layer_name(weight: str) -> str:
    """Name of the layer that a weight's key belongs to."""
    return "" if weight == "weight" else weight.removesuffix(".weight")
