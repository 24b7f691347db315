"""Operators of ONNX over axes as functions of torch: convolutions, pools, resizing, and what moves numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from .rows import Node

DTYPES: dict[int, torch.dtype] = {  # by ONNX's numbers
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
_CONVOLUTIONS: dict[int, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    1: (F.conv1d, F.conv_transpose1d),
    2: (F.conv2d, F.conv_transpose2d),
    3: (F.conv3d, F.conv_transpose3d),
}
_POOLS: dict[int, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    1: (F.avg_pool1d, F.max_pool1d),
    2: (F.avg_pool2d, F.max_pool2d),
    3: (F.avg_pool3d, F.max_pool3d),
}


class UnsupportedError(Exception):
    """What torch cannot compute as the node does, as an addition to its operator's name."""


def _padding(node: Node, size: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Padding before and behind each axis."""
    axes, kind = len(kernel), node.attribute("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        strides, dilations = (node.attribute(name, [1] * axes) for name in ("strides", "dilations"))
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(size, strides, reach, strict=True)]
        small, large = [each // 2 for each in total], [each - each // 2 for each in total]
        return (small, large) if kind == "SAME_UPPER" else (large, small)
    pads = [int(each) for each in node.attribute("pads", [0] * 2 * axes)] if kind == "NOTSET" else [0] * 2 * axes
    return pads[:axes], pads[axes:]


def _flat(before: Sequence[int], behind: Sequence[int]) -> list[int]:
    """Padding as torch takes it: from the last axis on, before and behind."""
    return [each for pair in zip(reversed(before), reversed(behind), strict=True) for each in pair]


def _conv(node: Node) -> Tensor:
    x, weight = node[0], node[1]
    axes = weight.ndim - 2
    if node.get(3) is not None:
        raise UnsupportedError("with a sum")  # of ONNX Runtime's fused one
    before, behind = _padding(node, x.shape[2:], weight.shape[2:])
    if before != behind:
        x, before = F.pad(x, _flat(before, behind)), [0] * axes
    strides, dilations = (node.attribute(name, [1] * axes) for name in ("strides", "dilations"))
    return _CONVOLUTIONS[axes][0](x, weight, node.get(2), strides, before, dilations, node.attribute("group", 1))


def _conv_transpose(node: Node) -> Tensor:
    axes = node[1].ndim - 2
    if "output_shape" in node.attributes or node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnsupportedError("with output_shape or auto_pad")
    before, behind = _padding(node, node[0].shape[2:], node[1].shape[2:])
    strides, dilations, more = (
        node.attribute(name, [usual] * axes)
        for name, usual in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    is_even, group = before == behind, node.attribute("group", 1)
    padding = before if is_even else [0] * axes
    found = _CONVOLUTIONS[axes][1](node[0], node[1], node.get(2), strides, padding, more, group, dilations)
    if is_even:
        return found
    for axis, (low, high) in enumerate(zip(before, behind, strict=True), 2):
        found = found.narrow(axis, low, found.shape[axis] - low - high)
    return found


def _max_pool(node: Node) -> Tensor:
    if node.outputs > 1:
        raise UnsupportedError("with its indices")
    x, kernel = node[0], node.attributes["kernel_shape"]
    before, behind = _padding(node, x.shape[2:], kernel)
    is_ceil, axes = bool(node.attribute("ceil_mode", 0)), len(kernel)
    if before != behind or any(2 * pad > k for pad, k in zip(before, kernel, strict=True)):
        if is_ceil:
            raise UnsupportedError("with ceil_mode and uneven padding")
        x, before = F.pad(x, _flat(before, behind), value=-torch.inf), [0] * axes
    strides, dilations = (node.attribute(name, [1] * axes) for name in ("strides", "dilations"))
    return _POOLS[axes][1](x, kernel, strides, before, dilations, is_ceil)


def _average_pool(node: Node) -> Tensor:
    x, kernel = node[0], node.attributes["kernel_shape"]
    axes, counts_padding = len(kernel), bool(node.attribute("count_include_pad", 0))
    before, behind = _padding(node, x.shape[2:], kernel)
    strides, is_ceil = node.attribute("strides", [1] * axes), bool(node.attribute("ceil_mode", 0))
    if any(each != 1 for each in node.attribute("dilations", [1] * axes)):
        raise UnsupportedError("with dilations")
    pool = _POOLS[axes][0]
    if before == behind and all(2 * pad <= k for pad, k in zip(before, kernel, strict=True)):
        return pool(x, kernel, strides, before, is_ceil, counts_padding)
    if is_ceil:
        raise UnsupportedError("with ceil_mode and uneven padding")
    whole = pool(F.pad(x, _flat(before, behind)), kernel, strides)
    return whole if counts_padding else whole / pool(F.pad(torch.ones_like(x), _flat(before, behind)), kernel, strides)


def _reshape(node: Node) -> Tensor:
    size = node[1].tolist()
    if not node.attribute("allowzero", 0):
        size = [node[0].shape[place] if each == 0 else each for place, each in enumerate(size)]
    return node[0].reshape(size)


def _flatten(node: Node) -> Tensor:
    axis = node.attribute("axis", 1)
    axis = axis + node[0].ndim if axis < 0 else axis
    return node[0].reshape(-1 if axis else 1, node[0].shape[axis:].numel())


def _squeeze(node: Node) -> Tensor:
    axes = node.ints("axes", 1)
    return node[0].squeeze() if axes is None else node[0].squeeze(axes)


def _unsqueeze(node: Node) -> Tensor:
    axes, x = node.ints("axes", 1) or [], node[0]
    for axis in sorted(each % (node[0].ndim + len(axes)) for each in axes):
        x = x.unsqueeze(axis)
    return x


def _split(node: Node) -> tuple[Tensor, ...]:
    axis, sizes = node.attribute("axis", 0), node.ints("split", 1)
    if sizes is None:
        sizes = [-(-node[0].shape[axis] // node.outputs)] * node.outputs
        sizes[-1] = node[0].shape[axis] - sum(sizes[:-1])
    return torch.split(node[0], sizes, axis)


def _slice(node: Node) -> Tensor:
    x, starts, ends = node[0], node[1].tolist(), node[2].tolist()
    axes = node.ints("axes", 3, range(len(starts))) or []
    steps = node.ints("steps", 4, [1] * len(starts)) or []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        low, high, by = slice(start, end, step).indices(x.shape[axis])
        if by > 0:
            x = torch.ops.aten.slice.Tensor(x, axis, low, max(high, low), by)
        else:
            x = x.index_select(axis, torch.arange(low, high, by, device=x.device))
    return x


def _gather(node: Node) -> Tensor:
    x, places, axis = node[0], node[1].long(), node.attribute("axis", 0)
    axis %= x.ndim
    if x.is_floating_point() and axis == 0 and x.ndim == 2 and places.ndim:
        return F.embedding(torch.where(places < 0, places + len(x), places), x)
    places = torch.where(places < 0, places + x.shape[axis], places)
    found = x.index_select(axis, places.reshape(-1))
    return found.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def _gather_elements(node: Node) -> Tensor:
    axis, places = node.attribute("axis", 0), node[1].long()
    return node[0].gather(axis, torch.where(places < 0, places + node[0].shape[axis], places))


def _gather_nd(node: Node) -> Tensor:
    if node.attribute("batch_dims", 0):
        raise UnsupportedError("with batch_dims")
    return node[0][tuple(node[1].long().unbind(-1))]


def _scatter_nd(node: Node) -> Tensor:
    if node.attribute("reduction", "none") != "none":
        raise UnsupportedError("with a reduction")
    return node[0].index_put(tuple(node[1].long().unbind(-1)), node[2])


def _expand(node: Node) -> Tensor:
    return node[0].expand(torch.broadcast_shapes(node[0].shape, node[1].tolist()))


def _pad(node: Node) -> Tensor:
    x, pads, mode = node[0], node.ints("pads", 1) or [], node.attribute("mode", "constant")
    axes, value = node.ints("axes", 3, range(x.ndim)) or [], node.get(2)
    before, behind = [0] * x.ndim, [0] * x.ndim
    for place, axis in enumerate(axes):
        before[axis], behind[axis] = pads[place], pads[place + len(axes)]
    if mode == "constant":
        return F.pad(x, _flat(before, behind), value=0.0 if value is None else value.item())
    if mode not in ("reflect", "edge") or any(before[:2] + behind[:2]):
        raise UnsupportedError(f"with the mode {mode}")
    return F.pad(x, _flat(before[2:], behind[2:]), "reflect" if mode == "reflect" else "replicate")


def _range(node: Node) -> Tensor:
    return torch.arange(*(node[place].item() for place in range(3)), dtype=node[0].dtype)


def _filled(node: Node) -> Tensor:
    value = node.attribute("value", None)
    filled = torch.zeros((), dtype=torch.float32) if value is None else torch.as_tensor(value).reshape(())
    return filled.expand(node[0].tolist()).clone()


def _resize(node: Node) -> Tensor:
    x, scales, sizes = node[0], node.get(2), node.get(3)
    mode, place = node.attribute("mode", "nearest"), node.attribute("coordinate_transformation_mode", "half_pixel")
    axes = x.ndim - 2
    if node.attribute("antialias", 0) or "axes" in node.attributes or not 1 <= axes <= 3:
        raise UnsupportedError("with antialias or axes")
    ways: dict[Any, tuple[str, bool | None]] = {
        ("linear", "align_corners"): (("linear", "bilinear", "trilinear")[axes - 1], True),
        **{
            ("linear", one): (("linear", "bilinear", "trilinear")[axes - 1], False)
            for one in ("half_pixel", "pytorch_half_pixel")
        },
        ("cubic", "align_corners"): ("bicubic", True),
        **{("cubic", one): ("bicubic", False) for one in ("half_pixel", "pytorch_half_pixel")},
        ("nearest", "asymmetric"): ("nearest", None),
        ("nearest", "half_pixel"): ("nearest-exact", None),
    }
    way = ways.get((mode, place))
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    is_odd = mode == "nearest" and (rounding != "floor") == (place == "asymmetric")
    coefficient = node.attribute("cubic_coeff_a", -0.75)
    if way is None or is_odd or (mode == "cubic" and abs(coefficient + 0.75) > 1e-6):
        raise UnsupportedError(f"of the mode {mode}, {place}, {rounding if mode == 'nearest' else coefficient}")
    if sizes is not None and sizes.numel():
        size, factors = [int(each) for each in sizes.tolist()[2:]], None
    elif scales is not None and scales.numel():
        size, factors = None, [float(each) for each in scales.tolist()[2:]]
        whole = [int(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)]
        if all(m == n * factor for m, n, factor in zip(whole, x.shape[2:], factors, strict=True)):
            size, factors = whole, None
    else:
        raise UnsupportedError("without sizes")
    return F.interpolate(x, size, factors, way[0], way[1])


def _depth_to_space(node: Node) -> Tensor:
    block, x = int(node.attributes["blocksize"]), node[0]
    if node.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    n, c, h, w = x.shape
    whole = x.view(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return whole.reshape(n, c // block**2, h * block, w * block)


def _space_to_depth(node: Node) -> Tensor:
    block, (n, c, h, w) = int(node.attributes["blocksize"]), node[0].shape
    whole = node[0].view(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return whole.reshape(n, c * block**2, h // block, w // block)


def _one_hot(node: Node) -> Tensor:
    count, axis = int(node[1]), node.attribute("axis", -1)
    places = node[0].long()
    hot = F.one_hot(torch.where(places < 0, places + count, places), count).bool()
    hot = hot.movedim(-1, axis)
    return torch.where(hot, node[2][1], node[2][0])


def _trilu(node: Node) -> Tensor:
    diagonal = node.get(1)
    cut = torch.triu if node.attribute("upper", 1) else torch.tril
    return cut(node[0], 0 if diagonal is None else int(diagonal))


def _cumsum(node: Node) -> Tensor:
    if node.attribute("exclusive", 0) or node.attribute("reverse", 0):
        raise UnsupportedError("exclusive or reversed")
    return node[0].cumsum(int(node[1]))


def _whole_axes(x: Tensor) -> list[int]:
    return list(range(2, x.ndim))


GRID_ROWS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("Conv", "FusedConv"), _conv),
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda node: node[0].mean(_whole_axes(node[0]), keepdim=True),
    "GlobalMaxPool": lambda node: node[0].amax(_whole_axes(node[0]), keepdim=True),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": lambda node: node[0].permute(node.attribute("perm", list(range(node[0].ndim))[::-1])),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": lambda node: torch.cat([node[place] for place in range(len(node.inputs))], node.attributes["axis"]),
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "ScatterElements": lambda node: node[0].scatter(node.attribute("axis", 0), node[1].long(), node[2]),
    "Expand": _expand,
    "Tile": lambda node: node[0].repeat(node[1].tolist()),
    "Pad": _pad,
    "Shape": lambda node: torch.tensor(node[0].shape)[node.attribute("start", 0) : node.attribute("end", None)],
    "Size": lambda node: torch.tensor(node[0].numel()),
    "Range": _range,
    "ConstantOfShape": _filled,
    "Resize": _resize,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "OneHot": _one_hot,
    "NonZero": lambda node: node[0].nonzero().mT,
    "Trilu": _trilu,
    "CumSum": _cumsum,
    "EyeLike": lambda node: torch.eye(*node[0].shape, dtype=node[0].dtype),
}
