"""Heads at the taps of a kernel, with all of Z^2 or a rectangle of it as keys, in interval arithmetic.

What the claim ``smoothed-kernel`` sums over Z^2 is enclosed: points far from the kernel are counted by a bound.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from mpmath.ctx_iv import MPIntervalContext

from .small_convolutions import Pixel

RANDOM = 12
_NEGLIGIBLE = 40  # sums over Z stop where a term is below exp(-40)

iv = MPIntervalContext()
iv.prec = 100

Interval = Any  # mpmath has no types


@dataclass(frozen=True)
class Kernel:
    """One output and one input channel of a kernel.

    Attributes:
        taps: Rows and columns.
        dilation: Rows and columns between neighbouring taps.
        weights: By tap, row by row.
        alphas: Of each head.
    """

    taps: Pixel
    dilation: Pixel
    weights: tuple[float, ...]
    alphas: tuple[float, ...]

    def __str__(self) -> str:
        sizes = " ".join("x".join(map(str, pair)) for pair in (self.taps, self.dilation))
        alphas = ", ".join(map(str, dict.fromkeys(self.alphas)))
        return f"taps and dilation {sizes}, weights {' '.join(map(str, self.weights))}, $alpha = {alphas}$"

    @property
    def targets(self) -> list[Pixel]:
        """Where the heads sit, from the first tap."""
        return [(self.dilation[0] * m, self.dilation[1] * n) for m, n in product(*map(range, self.taps))]

    @property
    def span(self) -> Pixel:
        """Where the last tap is, from the first."""
        rows, columns = (d * (k - 1) for d, k in zip(self.dilation, self.taps, strict=True))
        return rows, columns


LISTED = (
    Kernel((2, 2), (1, 1), (1, 1, 1, 1), (0.25,) * 4),
    Kernel((1, 3), (1, 1), (1, -1, 1), (2.0,) * 3),
    Kernel((3, 3), (1, 1), (1,) * 9, (0.75,) * 9),
    Kernel((3, 3), (2, 1), (1, 0, -1, 2, 0, -2, 1, 0, -1), (0.5,) * 9),
    Kernel((5, 1), (1, 1), (1, -4, 6, -4, 1), (0.375,) * 5),
    Kernel((1, 1), (1, 1), (3,), (0.25,)),
)


def tested_kernels() -> Iterator[Kernel]:
    """The listed ones, and random ones in which every head has an alpha of its own."""
    yield from LISTED
    draw = random.Random(17)
    for _ in range(RANDOM):
        taps, dilation = ((draw.randint(1, 3), draw.randint(1, 3)) for _ in range(2))
        heads = range(taps[0] * taps[1])
        yield Kernel(
            taps, dilation, tuple(draw.randint(-4, 4) for _ in heads), tuple(draw.randint(6, 40) / 8 for _ in heads)
        )


def grids_around(kernel: Kernel) -> list[list[Pixel]]:
    """Some rectangles of keys that contain all points between the taps."""
    rows, columns = kernel.span
    margins = ((0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 2), (1, 1, 1, 1), (3, 3, 2, 3))
    return [
        list(product(range(-top, rows + bottom + 1), range(-left, columns + right + 1)))
        for top, bottom, left, right in margins
    ]


def differences(kernel: Kernel, grid: Sequence[Pixel]) -> list[Interval]:
    """g_k: what attention over a grid of keys adds to the convolution, for each key."""
    found = [iv.mpf(0)] * len(grid)
    for weight, alpha, target in zip(kernel.weights, kernel.alphas, kernel.targets, strict=True):
        shares = [_power(alpha, k[0] - target[0]) * _power(alpha, k[1] - target[1]) for k in grid]
        total = sum(shares, iv.mpf(0))
        for number, (share, key) in enumerate(zip(shares, grid, strict=True)):
            found[number] += weight * (share / total - int(key == target))
    return found


def smoothed_bound(kernel: Kernel, *, border: int = 1) -> Interval:
    """sum_{z in Z^2} |sum_h W_h u_h(z)| + border sum_h (1 - P_h) |W_h|."""
    (rows, columns), margin = kernel.span, max(_reach(alpha) for alpha in kernel.alphas)
    window = list(product(range(-margin, rows + margin + 1), range(-margin, columns + margin + 1)))
    changes, total = dict.fromkeys(window, iv.mpf(0)), iv.mpf(0)
    for weight, alpha, (row, column) in zip(kernel.weights, kernel.alphas, kernel.targets, strict=True):
        mass = _theta(alpha) ** 2
        across = [_power(alpha, z - row) for z in range(-margin, rows + margin + 1)]
        along = [_power(alpha, z - column) / mass for z in range(-margin, columns + margin + 1)]
        for z, (a, b) in zip(window, product(across, along), strict=True):
            changes[z] += weight * (a * b)
        changes[row, column] -= weight
        spanned = sum(across[margin : margin + rows + 1], iv.mpf(0)) * sum(
            along[margin : margin + columns + 1], iv.mpf(0)
        )
        outside = 1 - sum(across, iv.mpf(0)) * sum(along, iv.mpf(0))  # what the window leaves out
        total += abs(weight) * (border * (1 - spanned) + iv.mpf([0, max(outside.b, 0)]))
    return sum(map(abs, changes.values()), total)


@cache
def _power(alpha: float, distance: int) -> Interval:
    """exp(-alpha distance^2)."""
    return iv.exp(-iv.mpf(alpha) * distance * distance)


@cache
def _reach(alpha: float) -> int:
    """A distance beyond which exp(-alpha n^2) is below exp(-40)."""
    distance = 1
    while _power(alpha, distance).b > iv.exp(-_NEGLIGIBLE).a:
        distance += 1
    return distance


@cache
def _theta(alpha: float) -> Interval:
    """theta_3: the terms up to the reach, and between 0 and 2 q^(n^2) / (1 - q) for the others."""
    last, q = _reach(alpha), _power(alpha, 1)
    rest = 2 * _power(alpha, last + 1) / (1 - q)
    return 1 + 2 * sum((_power(alpha, n) for n in range(1, last + 1)), iv.mpf(0)) + iv.mpf([0, rest.b])
