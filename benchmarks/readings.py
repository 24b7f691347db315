"""ONNX files as onnx2torch reads them, as networks that ``torch.export`` follows.

onnx2torch 1.5 has no LSTM and no global maximum, pads by reflection along last axes only, and asks at run time whether
a shape, a size or a scale that the file holds has some value, which no export can follow. These operations are read
here, by converters of a domain of their own, as its documentation describes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from calling import Call
from onnx2torch import convert
from onnx2torch.node_converters.registry import add_converter
from onnx2torch.utils.common import OnnxMapping, OperationConverterResult, get_const_value
from torch import Tensor, nn

DOMAIN = "readings"  # without a dot, as it becomes part of the names of modules
Reader = Callable[[Any, Any], nn.Module]


def _held(node: Any, graph: Any, place: int) -> Any:
    """The numbers of an input that the file holds, as a list; None where there is no such input."""
    if place >= len(node.input_values) or not node.input_values[place]:
        return None
    found = get_const_value(node.input_values[place], graph)
    return found.tolist() or None if isinstance(found, Tensor) else found


def _reshape(node: Any, graph: Any) -> nn.Module:
    shape = _held(node, graph, 1)
    return Call(lambda x: x.reshape([x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]))


def _expand(node: Any, graph: Any) -> nn.Module:
    shape = _held(node, graph, 1)
    return Call(lambda x: x.expand(torch.broadcast_shapes(x.shape, shape)))


def _resize(node: Any, graph: Any) -> nn.Module:
    """Nearest pixels by a whole factor, where all rules agree, and linear interpolation of half pixels."""
    scales, sizes = _held(node, graph, 2), _held(node, graph, 3)
    mode, where = (node.attributes.get(key) for key in ("mode", "coordinate_transformation_mode"))
    is_whole = scales is not None and all(float(one).is_integer() for one in scales)
    if mode == "nearest" and is_whole:
        return Call(lambda x: F.interpolate(x, scale_factor=scales[2:], mode="nearest"))
    if mode == "linear" and where in (None, "half_pixel", "pytorch_half_pixel"):
        given = {"size": sizes[2:]} if sizes else {"scale_factor": scales[2:]}
        return Call(lambda x: F.interpolate(x, mode="bilinear", align_corners=False, **given))
    raise NotImplementedError(f"Resize with mode={mode}, coordinate_transformation_mode={where}")


def _pad(node: Any, graph: Any) -> nn.Module:
    """Constant padding, or padding by reflection along any axis."""
    mode, pads = node.attributes.get("mode", "constant"), _held(node, graph, 1)
    half = len(pads) // 2
    ends = list(zip(pads[:half], pads[half:], strict=True))
    if mode == "constant":
        value = _held(node, graph, 2) or 0.0
        flat = [pad for both in reversed(ends) for pad in both]
        return Call(lambda x: F.pad(x, flat, value=value if isinstance(value, float) else value[0]))
    if mode != "reflect":
        raise NotImplementedError(f"Pad with mode={mode}")

    def call(x: Tensor) -> Tensor:
        for axis, (before, after) in enumerate(ends):
            n = x.shape[axis]
            left, right = range(before, 0, -1), range(n - 2, n - 2 - after, -1)
            if before or after:
                x = x.index_select(axis, torch.tensor([*left, *range(n), *right]))
        return x

    return Call(call)


def _global_maximum(node: Any, graph: Any) -> nn.Module:
    return Call(lambda x: x.amax(list(range(2, x.ndim)), keepdim=True))


def _slice(node: Any, graph: Any) -> nn.Module:
    names = ("starts", "ends", "axes", "steps")  # attributes in files of old versions
    given = (node.attributes.get(name) or _held(node, graph, place) for place, name in enumerate(names, 1))
    starts, ends, axes, steps = given
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)

    def call(x: Tensor) -> Tensor:
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            taken = range(
                *slice(start, None if step < 0 and end < -x.shape[axis] else end, step).indices(x.shape[axis])
            )
            x = x.index_select(axis, torch.tensor(list(taken), dtype=torch.int64))
        return x

    return Call(call)


def _axes(node: Any, graph: Any) -> Any:
    """Axes, which are an attribute in files of old versions."""
    return node.attributes.get("axes") or _held(node, graph, 1)


def _squeeze(node: Any, graph: Any) -> nn.Module:
    axes = _axes(node, graph)
    return Call(lambda x: x.squeeze() if axes is None else x.squeeze(axes))


def _unsqueeze(node: Any, graph: Any) -> nn.Module:
    axes = _axes(node, graph)

    def call(x: Tensor) -> Tensor:
        for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return Call(call)


def _reduced(reduce: Callable[..., Tensor]) -> Reader:
    def read(node: Any, graph: Any) -> nn.Module:
        axes, keep = _axes(node, graph), bool(node.attributes.get("keepdims", 1))
        return Call(lambda x: reduce(x, axes or list(range(x.ndim)), keepdim=keep))

    return read


def _split(node: Any, graph: Any) -> nn.Module:
    axis, count, sizes = node.attributes.get("axis", 0), len(node.output_values), _held(node, graph, 1)
    return Call(lambda x: tuple(x.split(sizes or -(-x.shape[axis] // count), axis)))


class Lstm(nn.Module):
    """ONNX's LSTM: [steps, batch, inputs] with its two states to [steps, 1, batch, hidden] and both last states."""

    def __init__(self, weight: Tensor, recurrent: Tensor, bias: Tensor) -> None:
        super().__init__()
        hidden = recurrent.shape[-1]
        self.inner = nn.LSTM(weight.shape[-1], hidden)
        order = [0, 2, 3, 1]  # gates of ONNX are in the order i, o, f, c; of torch i, f, c, o
        mine = [one.view(4, hidden, *one.shape[1:])[order].flatten(0, 1) for one in (weight, recurrent, *bias.chunk(2))]
        for parameter, value in zip(self.inner.parameters(), mine, strict=True):
            parameter.data = value.clone()

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All outputs and both last states."""
        y, (h, c) = self.inner(x, (h, c))
        return y.unsqueeze(1), h, c


def _lstm(node: Any, graph: Any) -> nn.Module:
    if node.attributes.get("direction", "forward") != "forward" or len(node.input_values) != 7 or node.input_values[4]:
        raise NotImplementedError("an LSTM of two directions, without states, or of sequences of different lengths")
    return Lstm(*(get_const_value(name, graph)[0] for name in node.input_values[1:4]))


READERS: dict[str, Reader] = {
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "ReduceSum": _reduced(torch.sum),
    "ReduceMean": _reduced(torch.mean),
    "Split": _split,
    "Expand": _expand,
    "Resize": _resize,
    "Pad": _pad,
    "GlobalMaxPool": _global_maximum,
    "LSTM": _lstm,
}


def _converter(read: Reader) -> Callable[[Any, Any], OperationConverterResult]:
    def converter(node: Any, graph: Any) -> OperationConverterResult:
        inputs = node.input_values[:1]
        if node.operation_type == "LSTM":
            inputs = (node.input_values[0], *node.input_values[5:])
        return OperationConverterResult(read(node, graph), OnnxMapping(inputs=inputs, outputs=node.output_values))

    return converter


for _name, _read in READERS.items():
    add_converter(_name, 1, domain=DOMAIN)(_converter(_read))


def read_by_onnx2torch(model: Any) -> nn.Module:
    """The network of an ONNX model, of at most opset 18, whose constants are folded.

    Raises:
        NotImplementedError: An operation is not read.
    """
    mine = copy.deepcopy(model)
    held = {one.name for one in mine.graph.initializer}
    held |= {name for node in mine.graph.node if node.op_type == "Constant" for name in node.output}
    for node in mine.graph.node:
        if node.op_type in READERS and node.domain == "" and _is_read(node, held):
            node.domain = DOMAIN
    _name_outputs(mine.graph)
    opset = mine.opset_import.add()
    opset.domain, opset.version = DOMAIN, 1
    return convert(mine).eval()  # type: ignore[no-any-return]


def _name_outputs(graph: Any) -> None:
    """Puts an operation of its own before each output, since onnx2torch returns an LSTM's results as one."""
    for port in graph.output:
        for node in graph.node:
            node.output[:] = [f"{name}_inner" if name == port.name else name for name in node.output]
            node.input[:] = [f"{name}_inner" if name == port.name else name for name in node.input]
        last = graph.node.add()
        last.op_type, last.name = "Identity", f"{port.name}_output"
        last.input.append(f"{port.name}_inner")
        last.output.append(port.name)


def _is_read(node: Any, held: set[str]) -> bool:
    """Whether an operation's shapes, axes and pads are the file's."""
    return node.op_type == "LSTM" or all(name in held for name in node.input[1:] if name)
