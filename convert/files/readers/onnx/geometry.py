"""Geometry that the attributes of Conv and ConvTranspose nodes describe, in the words of PyTorch's convolutions.

Numbers are given for each axis. Pads are those before every axis, then those after every axis.

Raises:
    RefusedError: By both functions here, where the attributes do not fit the kernel, or leave the padding open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Attributes = Mapping[str, Any]
_SAME = ("SAME_UPPER", "SAME_LOWER")


class RefusedError(Exception):
    """A node's convolution cannot be described; the message says why."""


def plain_geometry(attributes: Attributes, kernel: Sequence[int]) -> dict[str, Any]:
    """Geometry of a Conv with this kernel size, as ``ConvSpec.from_json`` takes it.

    PyTorch's "same" puts an odd pixel at the far end, as SAME_UPPER does; where the stride is not 1, the padding of
    both depends on the input's size.
    """
    geometry = _common(attributes, kernel)
    unit_stride, automatic = set(geometry["stride"]) == {1}, attributes.get("auto_pad", "NOTSET")
    spans = [step * (taps - 1) for step, taps in zip(geometry["dilation"], kernel, strict=True)]
    if automatic in _SAME:
        odd = any(span % 2 for span in spans)
        is_same = unit_stride and not (odd and automatic == "SAME_LOWER")
        return geometry | {"padding": "same" if is_same else automatic.lower()}
    before, after = _pads(attributes, kernel)
    if before == after:
        return geometry | {"padding": before}
    is_same = before == [span // 2 for span in spans] and after == [span - span // 2 for span in spans]
    return geometry | {"padding": "same" if is_same and unit_stride else _pairs(before, after)}


def transposed_geometry(attributes: Attributes, kernel: Sequence[int], size: Sequence[int] | None) -> dict[str, Any]:
    """Geometry of a ConvTranspose, likewise, with the size of its input, or None if the file leaves that open.

    A pad is an output that is cropped. An axis whose end is cropped less than its beginning keeps outputs there, which
    PyTorch calls output padding; one whose end is cropped more has a pair of pads (``padded.py``).
    """
    geometry = _common(attributes, kernel)
    added = attributes.get("output_padding", [0] * len(kernel))
    before, after = _cropped(attributes, kernel, size, geometry, added)
    kept = [more + first - last for more, first, last in zip(added, before, after, strict=True)]
    limits = map(max, geometry["stride"], geometry["dilation"])
    if all(0 <= number < limit for number, limit in zip(kept, limits, strict=True)):
        return geometry | {"padding": before, "output_padding": kept, "transposed": True}
    longer = [more + max(-last, 0) for more, last in zip(added, after, strict=True)]
    pairs = _pairs(before, [max(last, 0) for last in after])
    return geometry | {"padding": pairs, "output_padding": longer, "transposed": True}


def _cropped(
    attributes: Attributes,
    kernel: Sequence[int],
    size: Sequence[int] | None,
    geometry: Mapping[str, Any],
    added: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Outputs of a ConvTranspose that are cropped before and after each axis; negative ones are added.

    Of n pixels, stride s, taps that span d (K - 1) + 1 pixels and a added outputs there are s (n - 1) + span + a
    outputs; what there are more than ``output_shape`` (or than s n, with ``auto_pad``) is cropped, an odd one after
    the axis with SAME_UPPER, else before it. So do the standard, its reference and ONNX Runtime.
    """
    automatic, wanted = attributes.get("auto_pad", "NOTSET"), attributes.get("output_shape")
    spans = [step * (taps - 1) + 1 for step, taps in zip(geometry["dilation"], kernel, strict=True)]
    if wanted is not None:
        if size is None:
            raise RefusedError("its padding depends on the input's size (output_shape), which the file leaves open")
        lengths = [step * (n - 1) for step, n in zip(geometry["stride"], size, strict=True)]
        along = zip(lengths, spans, added, wanted[-len(kernel) :], strict=True)  # without batch and channels
        totals = [length + span + more - end for length, span, more, end in along]
    elif automatic in _SAME:
        totals = [span + more - step for span, more, step in zip(spans, added, geometry["stride"], strict=True)]
        if min(totals) < 0:
            raise RefusedError("its stride is longer than its kernel, where implementations of auto_pad disagree")
    else:
        return _pads(attributes, kernel)
    pads = [(total // 2, total - total // 2) if total > 0 else (0, total) for total in totals]
    if automatic != "SAME_UPPER":
        pads = [(after, before) if after > 0 else (before, after) for before, after in pads]
    return [before for before, _ in pads], [after for _, after in pads]


def _common(attributes: Attributes, kernel: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation and groups."""
    stride, dilation = (attributes.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    return {"stride": stride, "dilation": dilation, "groups": attributes.get("group", 1)}


def _pads(attributes: Attributes, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Pads before each axis and after it."""
    axes = len(kernel)
    if attributes.get("auto_pad", "NOTSET") == "VALID":
        return [0] * axes, [0] * axes
    pads = attributes.get("pads", [0] * (2 * axes))
    return pads[:axes], pads[axes:]


def _pairs(before: Sequence[int], after: Sequence[int]) -> list[list[int]]:
    return [list(pair) for pair in zip(before, after, strict=True)]
