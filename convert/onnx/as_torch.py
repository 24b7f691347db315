"""An ONNX file as a network of torch: its nodes one after another, each by its row (``rows.py``).

It says what the file computes, in any precision, so that a difference of the file can be judged. Whether the rows are
right is for the caller to see: by the run of ONNX Runtime, beside which torch's may differ by rounding alone.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn

from ..errors import ConversionError
from .constants import OWN_DOMAINS, load_model
from .grid_rows import UnsupportedError
from .rows import Node, computed

_DOMAINS = (*OWN_DOMAINS, "com.microsoft")
_LEAST = 11


class _Place(nn.Module):
    """A node, by whose name what it computes is recorded."""

    def forward(self, call: Callable[[], Any]) -> Any:
        """What the node gives."""
        return call()


class OnnxNetwork(nn.Module):
    """The network of an ONNX file.

    Args:
        path: The file.

    Raises:
        CheckpointError: It is damaged, or no ONNX model.
        ConversionError: Its opset is older than 11, or a node has inner graphs.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        model, _ = load_model(path)
        graph = model.graph
        self.opset = next((one.version for one in model.opset_import if one.domain in OWN_DOMAINS), 1)
        if self.opset < _LEAST:
            raise ConversionError(f"its opset is {self.opset}, and rows hold from {_LEAST} on")
        self._places: dict[str, _Place] = {}
        held = {one.name: _tensor(one) for one in graph.initializer}
        self._held = held
        self.inputs = [port.name for port in graph.input if port.name not in held]
        self.outputs = [port.name for port in graph.output]
        self._nodes = [(node, _attributes(node), self._placed(node)) for node in graph.node]
        self.eval()

    def _placed(self, node: NodeProto) -> str:
        name = _path_of(node)
        if name in ("", "training") or hasattr(nn.Module, name):
            name = f"node {name}"
        self._places.setdefault(name, _Place())
        self._modules[name] = self._places[name]  # whose name may have dots
        return name

    def forward(self, *args: Tensor, **kwargs: Tensor) -> dict[str, Tensor]:
        """The outputs, by name.

        Raises:
            ConversionError: A node has no row.
        """
        free = [name for name in self.inputs if name not in kwargs]
        values: dict[str, Tensor | None] = {"": None, **self._held, **dict(zip(free, args, strict=False)), **kwargs}
        for node, attributes, place in self._nodes:
            found = self._places[place](functools.partial(self._computed, node, attributes, values))
            values |= {name: one for name, one in zip(node.output, found, strict=False) if name}
        return {name: values[name] for name in self.outputs}  # type: ignore[misc]

    def _computed(
        self, node: NodeProto, attributes: dict[str, Any], values: dict[str, Tensor | None]
    ) -> tuple[Any, ...]:
        what = f"{node.op_type} ({node.name or node.output[0]})"
        if node.domain not in _DOMAINS:
            raise ConversionError(f"{what} of the domain {node.domain} has no row in torch")
        if node.op_type == "Constant":
            return (_constant(attributes),)
        number = sum(map(bool, node.output))
        try:
            return computed(Node(node.op_type, [values[name] for name in node.input], attributes, self.opset, number))
        except UnsupportedError as lack:
            raise ConversionError(
                f"{what}, {lack}".replace(", which has", " has") + ", is not read as torch's"
            ) from lack


def _path_of(node: NodeProto) -> str:
    """The module that torch's exporter noted, or the node's own name."""
    noted = {one.key: one.value for one in node.metadata_props}
    try:
        scopes = ast.literal_eval(noted.get("pkg.torch.onnx.name_scopes", "[]"))
    except (SyntaxError, ValueError):
        scopes = []
    return str(scopes[-2]) if len(scopes) > 1 and scopes[-2] else node.name or node.output[0]


def _tensor(one: TensorProto) -> Tensor:
    return torch.from_numpy(numpy_helper.to_array(one).copy())


def _attributes(node: NodeProto) -> dict[str, Any]:
    found = {}
    for one in node.attribute:
        value = helper.get_attribute_value(one)
        if one.type in (one.GRAPH, one.GRAPHS):
            raise ConversionError(f"{node.op_type} ({node.name or node.output[0]}) has graphs within it")
        value = value.decode() if isinstance(value, bytes) else value
        found[one.name] = _tensor(value) if isinstance(value, TensorProto) else value
    return found


def _constant(attributes: dict[str, Any]) -> Tensor:
    (value,) = attributes.values()
    if isinstance(value, Tensor):
        return value
    is_real = isinstance(value, float) or (isinstance(value, list | tuple) and value and isinstance(value[0], float))
    return torch.tensor(value, dtype=torch.float32 if is_real else torch.int64)
