"""Heads at the taps of a kernel, with all of Z^n or a box of it as keys, in interval arithmetic.

What the claim ``smoothed-kernel`` sums over Z^n is enclosed: points far from the kernel are counted by a bound.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product
from typing import Any

from mpmath.ctx_iv import MPIntervalContext

RANDOM = 12
_NEGLIGIBLE = 40  # sums over Z stop where a term is below exp(-40)

iv = MPIntervalContext()
iv.prec = 100

Interval = Any  # mpmath has no types
Point = tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """One output and one input channel of a kernel.

    Attributes:
        taps: Along each axis.
        dilation: Pixels between neighbouring taps, along each axis.
        weights: By tap, the last axis fastest.
        alphas: Of each head.
    """

    taps: Point
    dilation: Point
    weights: tuple[float, ...]
    alphas: tuple[float, ...]

    def __str__(self) -> str:
        sizes = " ".join("x".join(map(str, part)) for part in (self.taps, self.dilation))
        alphas = ", ".join(map(str, dict.fromkeys(self.alphas)))
        return f"taps and dilation {sizes}, weights {' '.join(map(str, self.weights))}, alpha {alphas}"

    @property
    def targets(self) -> list[Point]:
        """Where the heads sit, from the first tap."""
        return list(product(*([d * m for m in range(k)] for d, k in zip(self.dilation, self.taps, strict=True))))

    @property
    def span(self) -> Point:
        """Where the last tap is, from the first."""
        return tuple(d * (k - 1) for d, k in zip(self.dilation, self.taps, strict=True))


LISTED = (
    Kernel((2, 2), (1, 1), (1, 1, 1, 1), (0.25,) * 4),
    Kernel((1, 3), (1, 1), (1, -1, 1), (2.0,) * 3),
    Kernel((3, 3), (1, 1), (1,) * 9, (0.75,) * 9),
    Kernel((3, 3), (2, 1), (1, 0, -1, 2, 0, -2, 1, 0, -1), (0.5,) * 9),
    Kernel((5, 1), (1, 1), (1, -4, 6, -4, 1), (0.375,) * 5),
    Kernel((1, 1), (1, 1), (3,), (0.25,)),
    Kernel((3,), (1,), (1, 2, 1), (0.25,) * 3),
    Kernel((4,), (2,), (1, -1, 2, 1), (0.5, 1.0, 0.75, 2.0)),
    Kernel((2, 2, 2), (1, 1, 1), (1,) * 8, (1.5,) * 8),
    Kernel((1, 2, 2), (1, 2, 1), (2, -1, 1, 3), (1.5, 2.0, 3.0, 1.25)),
)


def tested_kernels() -> Iterator[Kernel]:
    """The listed ones, and random ones in which every head has an alpha of its own."""
    yield from LISTED
    draw = random.Random(17)
    for number in range(RANDOM):
        axes = 1 if number % 4 == 3 else 2
        taps, dilation = (tuple(draw.randint(1, 3) for _ in range(axes)) for _ in range(2))
        heads = range(math.prod(taps))
        yield Kernel(
            taps, dilation, tuple(draw.randint(-4, 4) for _ in heads), tuple(draw.randint(6, 40) / 8 for _ in heads)
        )


def grids_around(kernel: Kernel) -> list[list[Point]]:
    """Some boxes of keys that contain all points between the taps."""
    margins = ((0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 1, 0), (1, 0, 0, 2, 0, 1), (1, 1, 1, 1, 1, 1), (3, 3, 2, 3, 0, 0))
    grids = []
    for margin in margins:
        ends = zip(margin[::2], margin[1::2], kernel.span, strict=False)
        grids.append(list(product(*(range(-before, last + after + 1) for before, after, last in ends))))
    return grids


def differences(kernel: Kernel, grid: Sequence[Point]) -> list[Interval]:
    """g_k: what attention over a grid of keys adds to the convolution, for each key."""
    found = [iv.mpf(0)] * len(grid)
    for weight, alpha, target in zip(kernel.weights, kernel.alphas, kernel.targets, strict=True):
        shares = [_product(_power(alpha, k - t) for k, t in zip(key, target, strict=True)) for key in grid]
        total = sum(shares, iv.mpf(0))
        for number, (share, key) in enumerate(zip(shares, grid, strict=True)):
            found[number] += weight * (share / total - int(key == target))
    return found


def smoothed_bound(kernel: Kernel, *, border: int = 1) -> Interval:
    """sum_{z in Z^n} |sum_h W_h u_h(z)| + border sum_h (1 - P_h) |W_h|."""
    margin = max(_reach(alpha) for alpha in kernel.alphas)
    lines = [range(-margin, last + margin + 1) for last in kernel.span]
    changes, total = dict.fromkeys(product(*lines), iv.mpf(0)), iv.mpf(0)
    for weight, alpha, target in zip(kernel.weights, kernel.alphas, kernel.targets, strict=True):
        along = [[_power(alpha, z - t) / _theta(alpha) for z in line] for line, t in zip(lines, target, strict=True)]
        for z, shares in zip(changes, product(*along), strict=True):
            changes[z] += weight * _product(shares)
        changes[target] -= weight
        spanned = _product(sum(shares[margin : len(shares) - margin], iv.mpf(0)) for shares in along)
        outside = 1 - _product(sum(shares, iv.mpf(0)) for shares in along)  # what the window leaves out
        total += abs(weight) * (border * (1 - spanned) + iv.mpf([0, max(outside.b, 0)]))
    return sum(map(abs, changes.values()), total)


def _product(factors: Iterable[Interval]) -> Interval:
    """The product of intervals; of one, that one."""
    return reduce(operator.mul, factors)


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
