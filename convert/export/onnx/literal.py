"""The form ``literal``, with a probability for every query and key, as the paper has it.

Term (d) of the draft's eq. (7), r_delta . v_h, a softmax over all keys, and what the probabilities weigh.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .grid import Grid
from .heads import Heads, value_weight
from .nodes import COMPUTED, Nodes

_NUMPY = {1: "float32", 11: "float64"}


def literal(nodes: Nodes, grid: Grid, heads: Heads, weight: str) -> str:
    """As ``separable``."""
    spec, code = heads.spec, COMPUTED[heads.score_dtype]
    queries, keys = _queries(nodes, grid, code), _keys(nodes, grid, code)
    delta = nodes.add("Sub", keys, nodes.reshaped(queries, -1, 1, spec.axes), name="delta", description="k - q")
    encoding = nodes.add("Concat", _squared(nodes, delta, spec.axes, code), delta, axis=2, name="relative_encoding")
    vectors = nodes.constant(_head_vectors(heads).T, _NUMPY[code], name="head_vectors", description=_VECTORS)
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


def _squared(nodes: Nodes, positions: str, axes: int, code: int) -> str:
    """|.|^2 of positions [..., axes], as [..., 1]: a product with ones, which is the same in every opset."""
    squares = nodes.add("Mul", positions, positions)
    return nodes.add("MatMul", squares, nodes.constant(np.ones((axes, 1)), _NUMPY[code]), name="squared_length")


def _values(nodes: Nodes, grid: Grid, heads: Heads, weight: str) -> str:
    """W_val x of every head and key, [batch, groups, num_heads, keys, out_channels / groups]."""
    spec = heads.spec
    pixels = nodes.reshaped(grid.keys, grid.batch, spec.groups, 1, spec.in_channels // spec.groups, grid.key_count)
    tokens = nodes.add("Transpose", pixels, perm=[0, 1, 2, 4, 3], name="tokens")
    return nodes.add("MatMul", tokens, value_weight(nodes, spec, weight), name="values", description="W_val x.")


def _head_vectors(heads: Heads) -> NDArray[np.float64]:
    """v_h = -alpha_h (1, -2 Delta_h), [num_heads, axes + 1]."""
    alpha, centers = np.array(heads.alpha)[:, None], np.array(heads.centers)
    found: NDArray[np.float64] = -alpha * np.concatenate([np.ones_like(alpha), -2 * centers], axis=1)
    return found


_VECTORS = "v_h = -alpha_h (1, -2 Delta_h), which heads compare the relative encoding with: [axes + 1, head]."
