"""The quadratic relative positional encoding of Theorem 1, with D_p = 3.

For a key at delta = k - q from its query and a head with centre Delta and locality strength alpha,

    r_delta = (|delta|^2, delta_1, delta_2)        v = -alpha (1, -2 Delta_1, -2 Delta_2)

    v . r_delta = -alpha (|delta|^2 - 2 Delta . delta)
                = -alpha |delta - Delta|^2 + alpha |Delta|^2

The last term is the same for all keys and the softmax ignores it. So the largest score is that of the key at
q + Delta, by a gap of at least alpha, since two different pixels are at least 1 apart
(``proofs/claims/theorem/one_hot.py``).

Proved in ``proofs/claims/theorem/encoding.py``, with the draft's six components; in
``proofs/claims/other_encodings/gaussian_reduction.py`` as a special case of Gaussian heads; in
``proofs/claims/theorem/any_dimensions.py`` for n dimensions; in ``proofs/claims/theorem/absolute.py`` with absolute
positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ..spec import Size

ENCODING_DIM = 3


def relative_positions(queries: Tensor, keys: Tensor) -> Tensor:
    """delta = k - q for every pair, in pixels.

    Args:
        queries: Rows and columns of the queries, [num_queries, 2].
        keys: Rows and columns of the keys, [num_keys, 2].

    Returns:
        [num_queries, num_keys, 2].
    """
    return keys.unsqueeze(0) - queries.unsqueeze(1)


def relative_encoding(delta: Tensor) -> Tensor:
    """r_delta, [..., 3], of relative positions [..., 2]."""
    return torch.cat([delta.square().sum(-1, keepdim=True), delta], dim=-1)


def head_vectors(alpha: Tensor, centers: Tensor) -> Tensor:
    """v_h, [num_heads, 3], of locality strengths [num_heads] and centres [num_heads, 2]."""
    return -alpha.unsqueeze(-1) * torch.cat([torch.ones_like(centers[:, :1]), -2 * centers], dim=-1)


def positional_scores(encoding: Tensor, vectors: Tensor) -> Tensor:
    """r_delta . v_h for every query, head and key: term (d) of the draft's eq. (7).

    The three products are added one after the other, never as a matrix product, which a GPU might round to
    TF32.

    Args:
        encoding: r_delta, [num_queries, num_keys, 3].
        vectors: v_h, [num_heads, 3].

    Returns:
        [num_queries, num_heads, num_keys].
    """
    terms = encoding.unsqueeze(1)
    scores = terms[..., 0] * vectors[:, 0, None]
    for component in range(1, ENCODING_DIM):
        scores = scores + terms[..., component] * vectors[:, component, None]
    return scores


def key_positions(padded: Size, *, like: Tensor) -> Tensor:
    """Rows and columns of all pixels of the key grid, [num_keys, 2], with the dtype and device of ``like``."""
    return grid_points(*(torch.arange(length, dtype=like.dtype, device=like.device) for length in padded))


def grid_points(rows: Tensor, columns: Tensor) -> Tensor:
    """Every pair of a row and a column, row by row: [len(rows) * len(columns), 2]."""
    grid = rows.shape[0], columns.shape[0]  # unlike len(), not fixed in a trace
    return torch.stack([rows.unsqueeze(1).expand(grid), columns.expand(grid)], dim=-1).flatten(0, 1)


def scores_are_exact(
    dtype: torch.dtype, padded: Size, *, alpha: Iterable[float], centers: Iterable[tuple[float, float]]
) -> bool:
    """Whether every score of a layer is computed without any rounding in ``dtype``.

    With integer centres and alpha a power of two, each product and each partial sum of v . r_delta is an
    integer times alpha. It is exact as long as the integer, at most |delta|^2 + 2 |delta . Delta|, does not
    exceed 2^24 in binary32 and 2^53 in binary64. Proved in ``proofs/claims/computing/exact_scores.py``.

    Args:
        dtype: float32 or float64.
        padded: Size of the key grid.
        alpha: Locality strength of each head.
        centers: Centre of each head.
    """
    centers = list(centers)
    if not all(float(coordinate).is_integer() for center in centers for coordinate in center):
        return False
    rows, columns = padded.rows - 1, padded.columns - 1
    largest = rows**2 + columns**2 + 2 * max(rows * abs(row) + columns * abs(column) for row, column in centers)
    limits = torch.finfo(dtype)
    return largest <= 2 / limits.eps and all(
        is_power_of_two(a) and limits.tiny <= a <= limits.max / max(largest, 1) for a in alpha
    )


def is_power_of_two(value: float) -> bool:
    """Whether a number is 2^n for an integer n."""
    return math.isfinite(value) and math.frexp(value)[0] == 0.5
