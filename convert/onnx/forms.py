"""The two forms in which ONNX files hold attention: ``literal`` and ``separable``.

``literal`` has a probability for every query and key, as the paper does: term (d) of the draft's eq. (7),
r_delta . v_h, a softmax over all keys, and what the probabilities weigh.

``separable`` has a softmax an axis, since the quadratic score is a sum of one term for each axis.

    softmax_k(-alpha |k - q - Delta|^2)  =  product over the axes of  softmax_{k_i}(-alpha (k_i - q_i - Delta_i)^2)

(``proofs/claims/computing/separability.py``). Table T^i_t holds the probabilities of heads t along axis i. Where the
heads are a grid of taps (m, n), their sum is three products with tables and weights; a third axis adds one:

    Y_n = X (T^1_n)^T        Z_m = sum_n W_mn Y_n        output = sum_m T^0_m Z_m

Each of the two sums is one matrix product: over tables and channels, and over tables and keys.

A table has an entry for every query and key of its axis, too much for sequences and spectrograms. Where attention is
exactly one-hot, the probability of a key that is a pixel or more from a head's target rounds to 0
(``heads/regime.py``). There the scores and the softmax of an axis are those of a *window*: the targets of all heads
and the keys beside them. All queries then have one table, and behind the ends of the grid lie zeros, to which no head
gives anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..heads.regime import ONE_HOT_ALPHA
from ..spec import ConvSpec
from .grid import COMPUTED, DOUBLE, Grid, Heads, Nodes, mixing_weight, value_weight

_NUMPY = {1: "float32", 11: "float64"}


def literal(nodes: Nodes, grid: Grid, heads: Heads, weight: str) -> str:
    """As ``separable``."""
    spec, code = heads.spec, COMPUTED[heads.score_dtype]
    queries, keys = _queries(nodes, grid, code), _keys(nodes, grid, code)
    delta = nodes.add("Sub", keys, nodes.reshaped(queries, -1, 1, spec.axes), name="delta", description="k - q")
    # |delta|^2 is a product with ones, which is the same in every opset
    squares = nodes.add("Mul", delta, delta)
    encoding = nodes.add(
        "Concat",
        nodes.add("MatMul", squares, nodes.constant(np.ones((spec.axes, 1)), _NUMPY[code]), name="squared_length"),
        delta,
        axis=2,
        name="relative_encoding",
    )
    # v_h = -alpha_h (1, -2 Delta_h)
    alpha, centers = np.array(heads.alpha)[:, None], np.array(heads.centers)
    found: NDArray[np.float64] = -alpha * np.concatenate([np.ones_like(alpha), -2 * centers], axis=1)
    vectors = nodes.constant(found.T, _NUMPY[code], name="head_vectors", description=_VECTORS)
    scores = nodes.add("MatMul", encoding, vectors, name="scores", description="r_delta . v_h: [query, key, head].")
    by_head = nodes.add("Transpose", scores, perm=[0, 2, 1])
    probabilities = nodes.add("Softmax", by_head, axis=2, name="probabilities", description="Softmax over all keys.")
    if heads.score_dtype != heads.dtype:
        probabilities = nodes.cast(probabilities, COMPUTED[heads.dtype])
    joined = nodes.reshaped(probabilities, grid.query_count, -1)
    outputs = spec.out_channels // spec.groups
    rows = grid.count(grid.key_lengths, spec.num_heads)
    values = nodes.reshaped(_values(nodes, grid, heads, weight), grid.batch, spec.groups, rows, outputs)
    attended = nodes.add("MatMul", joined, values, name="attended", description="Sum over heads and keys.")
    turned = nodes.add("Transpose", attended, perm=[0, 1, 3, 2])
    return nodes.reshaped(turned, grid.batch, spec.out_channels, grid.query_size)


def _queries(nodes: Nodes, grid: Grid, code: int) -> str:
    """Positions of the queries on the padded input, [queries, axes]."""
    along = [grid.query_coordinates(axis, code) for axis in range(grid.spec.axes)]
    return grid.points(along, grid.query_size, "query_positions")


def _keys(nodes: Nodes, grid: Grid, code: int) -> str:
    """Positions of the keys, [keys, axes]."""
    along = [grid.key_coordinates(axis, code) for axis in range(grid.spec.axes)]
    return grid.points(along, grid.key_size, "key_positions")


def _values(nodes: Nodes, grid: Grid, heads: Heads, weight: str) -> str:
    """W_val x of every head and key, [batch, groups, num_heads, keys, out_channels / groups]."""
    spec = heads.spec
    pixels = nodes.reshaped(grid.keys, grid.batch, spec.groups, 1, spec.in_channels // spec.groups, grid.key_count)
    tokens = nodes.add("Transpose", pixels, perm=[0, 1, 2, 4, 3], name="tokens")
    return nodes.add("MatMul", tokens, value_weight(nodes, spec, weight), name="values", description="W_val x.")


_VECTORS = "v_h = -alpha_h (1, -2 Delta_h), which heads compare the relative encoding with: [axes + 1, head]."


_MANY_TAPS = 32  # along an axis; with more, windows are gathered by one node, not by a slice for each key


def separable(nodes: Nodes, grid: Grid, heads: Heads, weight: str) -> str:
    """Adds the attention of all heads, and gives its output's name: [batch, out_channels, *output size].

    Args:
        nodes: Nodes of the graph, which gets more.
        grid: Keys and queries.
        heads: Where heads look.
        weight: Name of the weight as the node holds it, in the precision of the attention.
    """
    spec = heads.spec
    read = _Read.of(nodes, grid, heads)
    for axis in reversed(range(spec.axes)):
        if is_windowed(heads, axis):
            read.windows_along(axis)
        elif axis > 0:
            read.tables_along(axis)
    rows = math.prod(read.counts) * read.channels
    flat = nodes.reshaped(read.name, grid.batch, spec.groups, rows, grid.count(read.lengths))
    mixing = mixing_weight(nodes, heads, weight, joined=not is_windowed(heads, 0))
    values = nodes.add("MatMul", mixing, flat, name="values", description="The heads' values, added up.")
    if is_windowed(heads, 0):
        return nodes.reshaped(values, grid.batch, spec.out_channels, grid.query_size)
    rows_of_heads = grid.count(grid.key_lengths[:1], len(heads.tables(0)))
    apart = nodes.reshaped(values, grid.batch, spec.out_channels, rows_of_heads, grid.count(grid.query_lengths[1:]))
    table = nodes.add("Transpose", _probabilities(nodes, grid, heads, 0), perm=[1, 0, 2])  # [queries, tables, keys]
    joined = nodes.reshaped(table, grid.one(grid.query_lengths[0]), -1)
    output = nodes.add("MatMul", joined, apart, name="attended_0", description="Sum over the heads and keys of axis 0.")
    return nodes.reshaped(output, grid.batch, spec.out_channels, grid.query_size)


def is_windowed(heads: Heads, axis: int) -> bool:
    """Whether a softmax along an axis goes over a window: where attention is one-hot."""
    return heads.are_a_grid and heads.at_taps and min(heads.alpha) >= ONE_HOT_ALPHA[heads.dtype]


@dataclass
class _Read:
    """Values that the heads have read along some axes.

    Attributes:
        nodes: Nodes of the graph, which gets more.
        grid: Keys and queries.
        heads: Where heads look.
        name: [batch, groups, *counts, channels, *lengths].
        counts: The tables along each axis; 1 where it was not read yet.
        lengths: The queries along each axis; the keys where it was not read yet.
    """

    nodes: Nodes
    grid: Grid
    heads: Heads
    name: str
    counts: list[int]
    lengths: list[str]

    @classmethod
    def of(cls, nodes: Nodes, grid: Grid, heads: Heads) -> _Read:
        spec = heads.spec
        read = cls(nodes, grid, heads, grid.keys, [1] * spec.axes, list(grid.key_lengths))
        read._reshape(grid.keys)
        return read

    @property
    def channels(self) -> int:
        return self.heads.spec.in_channels // self.heads.spec.groups

    @property
    def _numbers(self) -> str:
        return self.grid.count(self.lengths, math.prod(self.counts) * self.channels)

    def tables_along(self, axis: int) -> None:
        """Reads along one of the last two dimensions: its queries take the keys' place."""
        nodes, spec, table = self.nodes, self.heads.spec, _probabilities(self.nodes, self.grid, self.heads, axis)
        name, description = f"attended_{axis}", f"Values that the heads read along axis {axis}."
        count = len(self.heads.tables(axis))
        between = [1] * (2 * spec.axes - 2 - axis)  # tables of later axes, channels, and pixels of the axes before
        ends = [self.grid.one(length) for length in (self.grid.query_lengths[axis], self.grid.key_lengths[axis])]
        if axis < spec.axes - 1:
            spread = nodes.reshaped(table, count, *between, *ends)
            self.name = nodes.add("MatMul", spread, self.name, name=name, description=description)
        else:
            turned = nodes.add("Transpose", table, perm=[0, 2, 1])
            spread = nodes.reshaped(turned, count, *between, *ends[::-1])
            self.name = nodes.add("MatMul", self.name, spread, name=name, description=description)
        self.counts[axis], self.lengths[axis] = count, self.grid.query_lengths[axis]

    def windows_along(self, axis: int) -> None:
        """Reads along an axis whose softmax goes over a window."""
        nodes, spec = self.nodes, self.heads.spec
        place, rank = 3 + spec.axes + axis, 2 * spec.axes + 3
        one_more = nodes.constant([*[0] * place, 1, *[0] * (rank - 1), 1, *[0] * (spec.axes - 1 - axis)])
        padded = nodes.add("Pad", self.name, one_more)
        self.lengths[axis] = self.grid.query_lengths[axis]
        are_few = spec.kernel_size[axis] <= _MANY_TAPS
        keys = self._slices(padded, axis, place) if are_few else self._gathered(padded, axis, place, rank)
        read = nodes.add("MatMul", self._window_table(axis), keys, name=f"attended_{axis}")
        self.counts[axis] = len(self.heads.tables(axis))
        self._reshape(read)

    def _slices(self, padded: str, axis: int, place: int) -> str:
        """The keys of all windows, [batch, groups, keys of a window, anything], a slice for each: the fastest."""
        nodes, stride = self.nodes, self.nodes.constant([self.heads.spec.query_stride[axis]])
        one_less = nodes.add("Sub", self.grid.one(self.grid.query_lengths[axis]), nodes.constant([1]))
        last, parts = nodes.add("Mul", one_less, stride), []
        for key in _window(self.heads.spec, axis):  # counted from one pixel before the grid
            end = nodes.add("Add", last, nodes.constant([key + 2]))
            part = nodes.add("Slice", padded, nodes.constant([key + 1]), end, nodes.constant([place]), stride)
            parts.append(nodes.reshaped(part, self.grid.batch, self.heads.spec.groups, 1, self._numbers))
        return nodes.add("Concat", *parts, axis=2)

    def _gathered(self, padded: str, axis: int, place: int, rank: int) -> str:
        """The same in a few nodes, for many keys."""
        nodes, spec = self.nodes, self.heads.spec
        queries = nodes.add("Range", nodes.constant(0), self.grid.query_lengths[axis], nodes.constant(1))
        first = nodes.add("Mul", nodes.reshaped(queries, 1, -1), nodes.constant(spec.query_stride[axis]))
        keys = nodes.constant([[key + 1] for key in _window(spec, axis)])
        windows = nodes.add("Gather", padded, nodes.add("Add", first, keys), axis=place)  # [..., keys, queries, ...]
        others = [dimension for dimension in range(2, rank + 1) if dimension != place]
        keys_first = nodes.add("Transpose", windows, perm=[0, 1, place, *others])
        return nodes.reshaped(keys_first, self.grid.batch, spec.groups, len(_window(spec, axis)), self._numbers)

    def _window_table(self, axis: int) -> str:
        """The probabilities of the keys in a window, [tables, keys]."""
        spec = self.heads.spec
        delta = [[float(key - spec.middle[axis]) for key in _window(spec, axis)]]
        return _softmax(self.nodes, self.heads, axis, self.nodes.constant(delta, "float64"), dimensions=2)

    def _reshape(self, name: str) -> None:
        channels, size = self.channels, self.grid.size(self.lengths)
        self.name = self.nodes.reshaped(name, self.grid.batch, self.heads.spec.groups, *self.counts, channels, size)


def _window(spec: ConvSpec, axis: int) -> list[int]:
    """Keys at the taps along an axis and beside each, counted from the first tap; no more where taps lie far apart."""
    taps = range(0, spec.reach[axis] + 1, spec.dilation[axis])
    return sorted({tap + beside for tap in taps for beside in (-1, 0, 1)})


def _probabilities(nodes: Nodes, grid: Grid, heads: Heads, axis: int) -> str:
    """The tables of an axis, [tables, queries, keys]."""
    queries = nodes.reshaped(grid.query_coordinates(axis, DOUBLE), -1, 1)
    delta = nodes.add("Sub", grid.key_coordinates(axis, DOUBLE), queries, name=f"delta_{axis}")
    return _softmax(nodes, heads, axis, delta, dimensions=3)


def _softmax(nodes: Nodes, heads: Heads, axis: int, delta: str, *, dimensions: int) -> str:
    """The probabilities of keys at some offsets, made in double precision, which costs little here.

    The offsets k - q are [queries, keys], or [1, keys] of a window; the result has three dimensions, [tables, queries,
    keys], or two, [tables, keys].
    """
    alphas, centers = zip(*heads.tables(axis), strict=True)
    shape = (-1, *[1] * (dimensions - 1))
    distance = nodes.add("Sub", delta, nodes.numbers(centers, shape, name=f"centers_{axis}"))
    squared = nodes.add("Mul", distance, distance)
    sharpness = nodes.numbers([-alpha for alpha in alphas], shape, name=f"minus_alpha_{axis}")
    scores = nodes.add("Mul", squared, sharpness, name=f"scores_{axis}", description=_SCORES)
    table = nodes.add("Softmax", scores, name=f"probabilities_{axis}", axis=dimensions - 1, description=_SOFTMAX)
    return table if COMPUTED[heads.dtype] == DOUBLE else nodes.cast(table, COMPUTED[heads.dtype])


_SCORES = "Positional scores -alpha (k - q - Delta)^2 of queries q and keys k along one axis."
_SOFTMAX = "Softmax over the keys of one axis."
