"""The quadratic relative positional encoding of Theorem 1, with D_p = 3; along n axes with D_p = n + 1.

For a key at delta = k - q from its query and a head with centre Delta and sharpness alpha,

    r_delta = (|delta|^2, delta_1, delta_2)        v = -alpha (1, -2 Delta_1, -2 Delta_2)

    v . r_delta = -alpha (|delta|^2 - 2 Delta . delta)
                = -alpha |delta - Delta|^2 + alpha |Delta|^2

The last term is the same for all keys and the softmax ignores it. So the largest score is that of the key at
q + Delta, by a gap of at least alpha, since two different pixels are at least 1 apart
(``proofs/claims/theorem/one_hot.py``).

Proved in ``proofs/claims/theorem/encoding.py`` for n dimensions, with the draft's six components; in
``proofs/claims/other_encodings/gaussian.py`` as a special case of Gaussian heads; in
``proofs/claims/theorem/absolute.py`` with absolute positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ..arguments import Size

# Centres up to here, in pixels: |delta|^2 + 2 |Delta||delta| is at most 2^53 for all keys within 2^25 pixels of the
# target, so that scores of integers are exact in binary64.
FARTHEST_EXACT_CENTER = 2.0**25

DOUBLE = 2.0**-53  # unit roundoff of binary64


def encoding_dim(axes: int) -> int:
    """D_p: the squared distance, and one component for each axis."""
    return axes + 1


def relative_positions(queries: Tensor, keys: Tensor) -> Tensor:
    """delta = k - q for every pair, in pixels.

    Args:
        queries: Positions of the queries, [num_queries, axes].
        keys: Positions of the keys, [num_keys, axes].

    Returns:
        [num_queries, num_keys, axes].
    """
    return keys.unsqueeze(0) - queries.unsqueeze(1)


def relative_encoding(delta: Tensor) -> Tensor:
    """r_delta, [..., axes + 1], of relative positions [..., axes]; each component lies in one piece in memory."""
    along = delta.movedim(-1, 0)
    return torch.cat([along.square().sum(0, keepdim=True), along]).movedim(0, -1)


def head_vectors(alpha: Tensor, centers: Tensor) -> Tensor:
    """v_h, [num_heads, axes + 1], of sharpnesses [num_heads] and centres [num_heads, axes]."""
    return -alpha.unsqueeze(-1) * torch.cat([torch.ones_like(centers[:, :1]), -2 * centers], dim=-1)


def positional_scores(encoding: Tensor, vectors: Tensor) -> Tensor:
    """r_delta . v_h for every query, head and key: term (d) of the draft's eq. (7).

    The products are added one after the other, never as a matrix product, which a GPU might round to
    TF32.

    Args:
        encoding: r_delta, [num_queries, num_keys, axes + 1].
        vectors: v_h, [num_heads, axes + 1].

    Returns:
        [num_queries, num_heads, num_keys].
    """
    terms = encoding.unsqueeze(1)
    scores = terms[..., 0] * vectors[:, 0, None]
    for component in range(1, vectors.shape[1]):
        scores.addcmul_(terms[..., component], vectors[:, component, None])  # new memory would take longer to fill
    return scores


def key_positions(padded: Size, *, like: Tensor) -> Tensor:
    """Positions of all pixels of the key grid, [num_keys, axes], with the dtype and device of ``like``."""
    return grid_points(*(torch.arange(length, dtype=like.dtype, device=like.device) for length in padded))


def key_numbers(positions: Tensor, padded: Size) -> Tensor:
    """The numbers, row by row, of the keys at some positions of the key grid: [positions, axes] -> [positions]."""
    index = positions[:, 0]
    for axis in range(1, len(padded)):
        index = index * padded[axis] + positions[:, axis]
    return index.long()


def grid_points(*along: Tensor) -> Tensor:
    """Every point with one of these coordinates along each axis, row by row: [number of points, axes].

    The coordinates along one axis lie in one piece in memory.
    """
    grid = [coordinates.shape[0] for coordinates in along]  # unlike len(), not fixed in a trace
    shapes = [[1] * axis + [-1] + [1] * (len(along) - 1 - axis) for axis in range(len(along))]
    spread = [coordinates.view(shape).expand(grid) for coordinates, shape in zip(along, shapes, strict=True)]
    return torch.stack(spread).flatten(1).movedim(0, -1)


def scores_are_exact(
    dtype: torch.dtype, padded: Size, *, alpha: Iterable[float], centers: Iterable[tuple[float, ...]]
) -> bool:
    """Whether every score of a layer is computed without any rounding in ``dtype``.

    With integer centres and alpha a power of two, each product and each partial sum of v . r_delta is an
    integer times alpha. It is exact as long as the integer, at most |delta|^2 + 2 |delta . Delta|, does not
    exceed 2^24 in binary32 and 2^53 in binary64. Proved in ``proofs/claims/computing/exact_scores.py``.

    Args:
        dtype: float32 or float64.
        padded: Size of the key grid.
        alpha: Sharpness of each head.
        centers: Centre of each head.
    """
    centers = list(centers)
    if not all(float(coordinate).is_integer() for center in centers for coordinate in center):
        return False
    farthest = [length - 1 for length in padded]
    products = (sum(far * abs(along) for far, along in zip(farthest, center, strict=True)) for center in centers)
    largest = sum(far**2 for far in farthest) + 2 * max(products)
    limits = torch.finfo(dtype)
    return largest <= 2 / limits.eps and all(
        is_power_of_two(a) and limits.tiny <= a <= limits.max / max(largest, 1) for a in alpha
    )


def smallest_gap(alpha: float, center: tuple[float, ...]) -> float:
    """By how much the score of the key at an integer centre is above all others in binary64, at least, on any grid.

    Exactly, the gap is alpha D^2 for a key at distance D from the target. But v . r_delta cancels: its terms grow with
    the square of R = |Delta|. They are rounded at most 2 n + 4 times (squares and their sum, v, products and sums, and
    the subtraction of the largest score), and together are at most alpha (|delta|^2 + 2 R |delta|), with
    |delta| <= D + R. That is alpha (D^2 + 4 R D + 3 R^2), and alpha 3 R^2 for the target itself. So

        gap  >=  alpha (D^2 - c (D^2 + 4 R D + 6 R^2)),     c = (2 n + 4) 2^-53,

    which grows with D >= 1 as long as it is positive at 1. For alpha a power of two and R at most
    ``FARTHEST_EXACT_CENTER``, nothing rounds where D <= 2^25, and beyond the gap is above alpha by far. Proved in
    ``proofs/claims/computing/score_gap.py``.

    Args:
        alpha: Sharpness of the head.
        center: Its centre, integers.
    """
    reach = math.hypot(*center)
    if is_power_of_two(alpha) and reach <= FARTHEST_EXACT_CENTER:
        return alpha
    return alpha * (1 - (2 * len(center) + 4) * DOUBLE * (1 + 4 * reach + 6 * reach**2))


def is_power_of_two(value: float) -> bool:
    """Whether a number is 2^n for an integer n."""
    return math.isfinite(value) and math.frexp(value)[0] == 0.5
