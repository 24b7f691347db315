"""The parts of the attention nodes that take the place of one convolution node: names, grids, heads, weights.

Every name begins with that of the node's output, which no other tensor of the file has, so none is taken. A constant is
a node, not an initializer: files of the standard's first versions list each initializer as an input of the network.

All sizes are computed from that of the input when the graph runs, so the batch and the image may have any. No size of
values is left to be inferred, which Reshape refuses for a batch of no images.

Heads are listed in the order of the weight's taps. A transposed convolution's weight lies flipped beside its kernel;
ONNX has no operator that flips, and with the heads in the weight's order none is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..heads.encoding import is_power_of_two
from ..heads.values import LayerValues
from ..spec import ConvSpec
from . import onnx_package

if TYPE_CHECKING:
    from onnx import NodeProto

FLOAT, DOUBLE = 1, 11  # ONNX's types
COMPUTED = {torch.float64: DOUBLE, torch.float32: FLOAT}
"""ONNX's types of the precisions that attention is computed in."""
STORED = {**COMPUTED, torch.float16: 10, torch.bfloat16: 16}
"""ONNX's types of the precisions that a convolution's weights may have."""


class Nodes:
    """Nodes that are added one by one.

    Args:
        prefix: Beginning of the names of nodes and tensors.

    Attributes:
        written: The nodes.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._taken: dict[str, int] = {}
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}
        self.written: list[NodeProto] = []
        self._onnx = onnx_package("writing ONNX files")

    def add(
        self,
        operator: str,
        *inputs: str,
        name: str = "",
        output: str = "",
        description: str = "",
        **attributes: int | float | list[int],
    ) -> str:
        """Adds a node of an operator with its inputs and attributes, and gives the name of its output.

        That is the prefix with ``name``, which is the operator's by default, or ``output`` where it is given whole.
        """
        own = self._new(name or operator)
        self.written.append(
            self._onnx.helper.make_node(
                operator, inputs, [output or own], own, doc_string=description or None, **attributes
            )
        )
        return output or own

    def constant(self, values: object, dtype: str = "int64", *, name: str = "", description: str = "") -> str:
        """Adds a constant, once for all that have the same numbers, and gives its name."""
        array = np.asarray(values, dtype)
        key = array.dtype.name, array.tobytes(), array.shape
        if key not in self._constants:
            own = self._constants[key] = self._new(name or "constant")
            value = self._onnx.numpy_helper.from_array(array)
            self.written.append(
                self._onnx.helper.make_node("Constant", [], [own], own, doc_string=description or None, value=value)
            )
        return self._constants[key]

    def numbers(self, values: Sequence[float], shape: tuple[int, ...], *, name: str) -> str:
        """Adds a constant of double precision in a shape."""
        return self.constant(np.reshape(values, shape), "float64", name=name)

    def cast(self, value: str, code: int, *, name: str = "") -> str:
        """Adds a Cast to one of ONNX's types."""
        return self.add("Cast", value, name=name, to=code)

    def reshaped(self, value: str, *sizes: int | str, name: str = "") -> str:
        """Adds a Reshape to sizes that are numbers (-1 for what is left) or tensors of shape [] or [any]."""
        return self.add("Reshape", value, self.joined(*sizes), name=name)

    def joined(self, *sizes: int | str) -> str:
        """One tensor of integers, [n], of numbers and tensors."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes))
        parts: list[str] = []
        for kind, group in groupby(sizes, type):  # numbers that follow each other are one constant
            run = list(group)
            parts += [self.constant(run)] if kind is int else map(str, run)
        return self.add("Concat", *parts, axis=0)

    def _new(self, name: str) -> str:
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return f"{self._prefix}/{name}" + (f"_{count}" if count > 1 else "")


@dataclass
class Grid:
    """The padded input of a layer and the positions on it.

    Attributes:
        nodes: Nodes of the graph, which gets more.
        spec: Geometry of the layer.
        keys: Name of the padded input, [batch, in_channels, *padded size], in the precision of the attention.
        batch: Name of the number of images, [1].
    """

    nodes: Nodes
    spec: ConvSpec
    keys: str
    batch: str

    @classmethod
    def of(cls, nodes: Nodes, spec: ConvSpec, x: str) -> Grid:
        """Pads the input of this name with zeros; the nodes of the graph get more."""
        if spec.transposed:
            x = _stuffed(nodes, spec, x)
        pads = _dynamic_pads(nodes, spec, x) if spec.is_dynamic else _fixed_pads(nodes, spec)
        keys = x if pads is None else nodes.add("Pad", x, pads, name="keys", description="The keys: the padded input.")
        return cls(nodes, spec, keys, nodes.add("Gather", nodes.add("Shape", x), nodes.constant([0]), name="batch"))

    @cached_property
    def key_lengths(self) -> list[str]:
        """Names of the lengths of the key grid along each axis, [] each."""
        shape = self.nodes.add("Shape", self.keys, name="key_grid")
        return [self.nodes.add("Gather", shape, self.nodes.constant(2 + axis)) for axis in range(self.spec.axes)]

    @cached_property
    def query_lengths(self) -> list[str]:
        """Names of the lengths of the query grid, (P - d (K - 1) - 1) / s + 1, [] each."""
        return [
            self._with("Add", self._with("Div", self._with("Add", length, -reach - 1), stride), 1)
            for length, reach, stride in zip(self.key_lengths, self.spec.reach, self.spec.query_stride, strict=True)
        ]

    @cached_property
    def key_count(self) -> str:
        """Name of the number of keys, [1]."""
        return self.count(self.key_lengths)

    @cached_property
    def key_size(self) -> str:
        """Name of the size of the key grid, [axes]."""
        return self.size(self.key_lengths)

    @cached_property
    def query_size(self) -> str:
        """Name of the size of the query grid, [axes]."""
        return self.size(self.query_lengths)

    @cached_property
    def query_count(self) -> str:
        """Name of the number of queries, [1]."""
        return self.count(self.query_lengths)

    def count(self, lengths: list[str], factor: int = 1) -> str:
        """Name of a product of lengths and a factor, [1]."""
        product, *others = [*([self.nodes.constant(factor)] if factor != 1 or not lengths else []), *lengths]
        for length in others:
            product = self.nodes.add("Mul", product, length)
        return self.one(product)

    def size(self, lengths: list[str]) -> str:
        """Name of a size, [number of lengths]."""
        return self.nodes.joined(*(self.one(length) for length in lengths))

    def one(self, length: str) -> str:
        """A length as a list of one."""
        return self.nodes.reshaped(length, 1)

    def key_coordinates(self, axis: int, code: int) -> str:
        """Name of the positions of the keys along an axis, [P], of one of ONNX's types."""
        zero, one = self.nodes.constant(0), self.nodes.constant(1)
        return self.nodes.cast(self.nodes.add("Range", zero, self.key_lengths[axis], one), code)

    def query_coordinates(self, axis: int, code: int) -> str:
        """Name of the positions s i + d m_0 of the queries on the padded input along an axis, [Q]."""
        start, stride = self.spec.middle[axis], self.spec.query_stride[axis]
        end = self._with("Add", self._with("Mul", self.query_lengths[axis], stride), start)
        positions = self.nodes.add("Range", self.nodes.constant(start), end, self.nodes.constant(stride))
        return self.nodes.cast(positions, code)

    def points(self, coordinates: list[str], size: str, name: str) -> str:
        """Name of every point with these coordinates along the axes, row by row: [number of points, axes]."""
        nodes, axes = self.nodes, len(coordinates)
        along = []
        for axis, positions in enumerate(coordinates):
            spread = nodes.reshaped(positions, *([1] * axis), -1, *([1] * (axes - axis)))
            along.append(nodes.add("Expand", spread, nodes.joined(size, 1)))
        grid = along[0] if axes == 1 else nodes.add("Concat", *along, axis=axes)
        return nodes.reshaped(grid, -1, axes, name=name)

    def _with(self, operator: str, value: str, number: int) -> str:
        """Name of a sum, product or quotient with a number; of the value itself where that changes nothing."""
        is_neutral = number == (0 if operator == "Add" else 1)
        return value if is_neutral else self.nodes.add(operator, value, self.nodes.constant(number))


def _fixed_pads(nodes: Nodes, spec: ConvSpec) -> str | None:
    """The pads before all axes, then after all; of a stuffed input less the zeros that its last pixel has behind it."""
    excess = [step - 1 for step in spec.stuffing]
    before = [pair[0] for pair in spec.pads]
    after = [pair[1] - more for pair, more in zip(spec.pads, excess, strict=True)]
    return nodes.constant([0, 0, *before, 0, 0, *after]) if any(before) or any(after) else None


def _dynamic_pads(nodes: Nodes, spec: ConvSpec, x: str) -> str:
    """The pads with which there is an output for every ``stride`` pixels (``ConvSpec.pads_at``), [2 axes + 4]."""
    size = nodes.add("Gather", nodes.add("Shape", x), nodes.constant([2 + axis for axis in range(spec.axes)]))
    stride, span = nodes.constant(list(spec.stride)), nodes.constant([reach + 1 for reach in spec.reach])
    one, two = nodes.constant([1] * spec.axes), nodes.constant([2] * spec.axes)
    outputs = nodes.add("Div", nodes.add("Sub", size, one), stride)  # one less than there are
    needed = nodes.add("Add", nodes.add("Mul", outputs, stride), span)
    lacking = nodes.add("Sub", needed, size)
    twice = nodes.add("Add", lacking, nodes.add("Abs", lacking))  # Max takes integers from opset 12 on only
    added = nodes.add("Div", twice, two)
    less = nodes.add("Div", added, two)
    more = nodes.add("Sub", added, less)
    before, after = (less, more) if spec.padding == "same_upper" else (more, less)
    return nodes.joined(0, 0, before, 0, 0, after)


def _stuffed(nodes: Nodes, spec: ConvSpec, x: str) -> str:
    """Puts s - 1 zeros behind every pixel along each axis."""
    if all(step == 1 for step in spec.stride):
        return x
    shape = nodes.add("Shape", x)
    leading = nodes.add("Gather", shape, nodes.constant([0, 1]))
    lengths = [nodes.add("Gather", shape, nodes.constant([2 + axis])) for axis in range(spec.axes)]
    apart = nodes.reshaped(x, leading, *(part for length in lengths for part in (length, 1)))
    behind = [0, 0, *(part for step in spec.stride for part in (0, step - 1))]
    padded = nodes.add("Pad", apart, nodes.constant([0] * (2 * spec.axes + 2) + behind))
    longer = [
        nodes.add("Mul", length, nodes.constant([step])) for length, step in zip(lengths, spec.stride, strict=True)
    ]
    return nodes.reshaped(padded, leading, *longer, name="stuffed")


@dataclass(frozen=True)
class Heads:
    """Centres and sharpnesses of the heads.

    Attributes:
        spec: Geometry of the layer.
        alpha: Sharpness of each, [num_heads], in the order of the weight's taps.
        centers: Centre of each, [num_heads, axes].
        dtype: Precision of the attention probabilities.
    """

    spec: ConvSpec
    alpha: tuple[float, ...]
    centers: tuple[tuple[float, ...], ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, layer: LayerValues) -> Heads:
        """The heads of a layer."""
        regime, step = layer.regime, -1 if layer.spec.transposed else 1
        return cls(layer.spec, regime.alpha[::step], regime.centers[::step], regime.dtype)

    @property
    def at_taps(self) -> bool:
        """Whether each centre is the offset of the head's kernel tap."""
        return self.centers == self.spec.tap_offsets[:: -1 if self.spec.transposed else 1]

    @property
    def scores_are_exact(self) -> bool:
        """Whether scores are integers times a power of two, which binary32 does not round (``exact_scores.py``)."""
        return all(map(is_power_of_two, self.alpha)) and all(
            coordinate.is_integer() for center in self.centers for coordinate in center
        )

    @property
    def score_dtype(self) -> torch.dtype:
        """Precision in which all scores are made: double, unless single is as good."""
        return self.dtype if self.scores_are_exact else torch.float64

    def along(self, axis: int) -> list[tuple[float, float]] | None:
        """Alpha and centre of the heads of each tap along an axis, if they depend on nothing else."""
        taps = np.indices(self.spec.kernel_size).reshape(self.spec.axes, -1)[axis].tolist()
        named = {(tap, alpha, center[axis]) for tap, alpha, center in zip(taps, self.alpha, self.centers, strict=True)}
        return [(alpha, center) for _, alpha, center in sorted(named)] if len(named) == len(set(taps)) else None

    @property
    def are_a_grid(self) -> bool:
        """Whether the heads' tables along each axis are those of the kernel's taps along it."""
        return all(self.along(axis) is not None for axis in range(self.spec.axes))

    def tables(self, axis: int) -> list[tuple[float, float]]:
        """Alpha and centre of each table along an axis: one for each tap, or for each head."""
        own = [(alpha, center[axis]) for alpha, center in zip(self.alpha, self.centers, strict=True)]
        return (self.along(axis) or own) if self.are_a_grid else own


def value_weight(nodes: Nodes, spec: ConvSpec, weight: str) -> str:
    """W_val of every head, [groups, num_heads, in_channels / groups, out_channels / groups].

    The weight is the name of that which the node holds (``ConvSpec.weight_shape``).
    """
    first, second = _channels(spec)
    apart = nodes.reshaped(weight, spec.groups, first, second, spec.num_heads)
    order = [0, 3, 1, 2] if spec.transposed else [0, 3, 2, 1]
    return nodes.add("Transpose", apart, perm=order, name="value_weight", description="W_val of every head.")


def mixing_weight(nodes: Nodes, heads: Heads, weight: str, *, joined: bool) -> str:
    """The weight that mixes what all tables of the last axes read into what those of the first axis read.

    Where the heads are a grid, tap (m, n) reads by table m along the first axis and table n along the second, so it is
    the weight itself. Else each head has its own tables, and it is zero where two of them do not belong to one head.

    Returns:
        [groups, out_channels / groups * first tables, other tables * in_channels / groups] where the first axis's
        tables come after it (``joined``), else with all tables in the last dimension.
    """
    spec = heads.spec
    first, second = _channels(spec)
    ends = (2, 1) if spec.transposed else (1, 2)  # where output and input channels are
    inputs, outputs = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    if heads.are_a_grid:
        apart = nodes.reshaped(weight, spec.groups, first, second, *spec.kernel_size)
        taps = list(range(3, 3 + spec.axes))
        ordered = nodes.add("Transpose", apart, perm=[0, ends[0], *taps, ends[1]])
        counts = spec.kernel_size
    else:
        apart = nodes.reshaped(weight, spec.groups, first, second, spec.num_heads)
        ordered = nodes.add("Transpose", apart, perm=[0, ends[0], 3, ends[1]])
        spread = [spec.groups, outputs, spec.num_heads, *[1] * (spec.axes - 1), inputs]
        counts = (spec.num_heads,) * spec.axes
        together = np.zeros(counts)
        together[(np.arange(spec.num_heads),) * spec.axes] = 1
        one_head = nodes.constant(together[..., None], str(heads.dtype).removeprefix("torch."), name="one_head")
        ordered = nodes.add("Mul", nodes.reshaped(ordered, *spread), one_head)
    rows = outputs * counts[0] if joined else outputs
    return nodes.reshaped(ordered, spec.groups, rows, -1, name="mixing_weight")


def _channels(spec: ConvSpec) -> tuple[int, int]:
    """Channels of a group in the weight's first and second dimension."""
    pair = spec.out_channels // spec.groups, spec.in_channels // spec.groups
    return pair[::-1] if spec.transposed else pair
