"""What the attributes of Conv and ConvTranspose nodes say of their geometry, in the words of PyTorch's convolutions.

Numbers are given for each axis. Pads are those before every axis, then those after every axis.
"""

from __future__ import annotations

from .nodes import Node


def plain_geometry(node: Node, kernel: list[int]) -> dict[str, object] | str:
    """The geometry of a Conv, as ``describe`` takes it, or why it has none.

    PyTorch's "same" puts an odd pixel at the far end, as SAME_UPPER does, which depends on the input's size where the
    stride is not 1.

    Args:
        node: The node.
        kernel: The taps of its weight along each axis.
    """
    geometry, ones = _geometry(node, kernel), [1] * len(kernel)
    stride, dilation, automatic = geometry["stride"], geometry["dilation"], node.attributes.get("auto_pad", "NOTSET")
    if not isinstance(dilation, list) or len(dilation) != len(kernel):
        return "its dilations are not one number for each axis"
    spans = [step * (taps - 1) for step, taps in zip(dilation, kernel, strict=True)]
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        odd = any(span % 2 for span in spans)
        is_same = stride == ones and not (odd and automatic == "SAME_LOWER")
        return {**geometry, "padding": "same" if is_same else automatic.lower()}
    pads = _pads(node, kernel)
    if pads is None:
        return "its padding is not one number for each end of each axis"
    before, after = pads
    if before == after:
        return {**geometry, "padding": before}
    is_same = before == [span // 2 for span in spans] and after == [span - span // 2 for span in spans]
    pairs = [list(pair) for pair in zip(before, after, strict=True)]
    return {**geometry, "padding": "same" if is_same and stride == ones else pairs}


def transposed_geometry(node: Node, kernel: list[int]) -> dict[str, object] | str:
    """The geometry of a ConvTranspose, as ``describe`` takes it, or why no convolution of PyTorch has it.

    Fewer pads after an axis than before it are outputs that are kept there, which PyTorch calls output padding.

    Args:
        node: The node.
        kernel: The taps of its weight along each axis.
    """
    if "output_shape" in node.attributes:
        return "its padding depends on the input's size (output_shape)"
    if node.attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return "its padding is automatic (auto_pad), which implementations compute differently"
    pads, added = _pads(node, kernel), node.attributes.get("output_padding", [0] * len(kernel))
    if pads is None or not isinstance(added, list) or len(added) != len(kernel):
        return "its padding is not one number for each end of each axis"
    kept = [more + before - after for more, before, after in zip(added, *pads, strict=True)]
    return {**_geometry(node, kernel), "padding": pads[0], "output_padding": kept, "transposed": True}


def _geometry(node: Node, kernel: list[int]) -> dict[str, object]:
    """Stride, dilation and groups."""
    stride, dilation = (node.attributes.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    return {"stride": stride, "dilation": dilation, "groups": node.attributes.get("group", 1)}


def _pads(node: Node, kernel: list[int]) -> tuple[list[int], list[int]] | None:
    """The pads before each axis and after it, or None if they are no such numbers."""
    if node.attributes.get("auto_pad", "NOTSET") == "VALID":
        return [0] * len(kernel), [0] * len(kernel)
    pads = node.attributes.get("pads", [0] * (2 * len(kernel)))
    if not isinstance(pads, list) or len(pads) != 2 * len(kernel):
        return None
    return pads[: len(kernel)], pads[len(kernel) :]
