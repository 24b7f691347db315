"""Convolutions whose geometry a file itself describes, so that they can be converted without the network's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....errors import GeometryError
from ....spec import ConvSpec
from .stored import StoredTensor


@dataclass(frozen=True)
class StoredConvolution:
    """A convolution in a file.

    Attributes:
        weight: Key of its weight among the file's tensors.
        bias: Key of its bias, or None.
        spec: Its geometry, or None if it is not one of ``nn.Conv2d``.
        problem: Why ``spec`` is None.
        note: What the user should know of its weights, or None.
    """

    weight: str
    bias: str | None
    spec: ConvSpec | None
    problem: str | None = None
    note: str | None = field(default=None, compare=False)

    @classmethod
    def refused(cls, problem: str) -> StoredConvolution:
        """A convolution that cannot be converted."""
        return cls("", None, None, problem)


def describe(
    tensors: Mapping[str, object], weight: str | None, bias: str | None, geometry: Mapping[str, object]
) -> StoredConvolution:
    """A convolution by what a file says of it.

    Args:
        tensors: The file's tensors.
        weight: Key of the weight, [out_channels, in_channels / groups, rows, columns].
        bias: Key of the bias, [out_channels], or None.
        geometry: Stride, dilation, padding, padding_mode and groups, as ``ConvSpec`` takes them; others are
            its defaults. Channels and kernel are the weight's.
    """
    values = tensors.get(weight) if weight is not None else None
    if weight is None or not isinstance(values, StoredTensor) or values.flaw() is not None:
        return StoredConvolution.refused("its weight is computed or not a plain tensor")
    if len(values.shape) != 4:
        return StoredConvolution.refused(f"Conv{len(values.shape) - 2}d is not nn.Conv2d")
    groups = geometry.get("groups", 1)
    if type(groups) is not int:
        return StoredConvolution.refused("its groups are not a number")
    out_channels, width, *kernel = values.shape
    channels = {"in_channels": width * groups, "out_channels": out_channels, "kernel_size": kernel}
    try:
        spec = ConvSpec.from_json({**geometry, **channels, "bias": bias is not None})
    except GeometryError as error:
        return StoredConvolution.refused(str(error))
    if not _is_whole(spec):
        return StoredConvolution.refused("its geometry is not one of integers and pairs")
    if bias is not None and not _is_bias(tensors.get(bias), out_channels):
        return StoredConvolution.refused("its bias is computed or not one number a channel")
    return StoredConvolution(weight, bias, spec)


def _is_whole(spec: ConvSpec) -> bool:
    """Whether the numbers that a file gave are integers, and not only compare like them."""
    pairs = [spec.kernel_size, spec.stride, spec.dilation]
    pairs += [] if isinstance(spec.padding, str) else [spec.padding]
    return all(len(pair) == 2 and all(type(value) is int and value < 2**31 for value in pair) for pair in pairs)


def _is_bias(values: object, channels: int) -> bool:
    return isinstance(values, StoredTensor) and values.flaw() is None and values.shape == (channels,)
