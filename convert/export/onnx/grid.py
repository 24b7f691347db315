"""The grids of one layer in a graph: its keys, the pixels of the padded input, and its queries.

All sizes are computed from that of the input when the graph runs, so the batch and the image may have any. No size of
values is left to be inferred, which Reshape refuses for a batch of no images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...spec import ConvSpec
from .nodes import Nodes


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
