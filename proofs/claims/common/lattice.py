"""Heads that look by position, with all of Z^n or some of its points as keys, beside a kernel.

Shares are fractions, or intervals where they are Gaussians: what a claim sums over Z^n is then enclosed, as points far
from the kernel are counted by a bound.
"""

from __future__ import annotations

import math
import operator
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product
from typing import Any, NamedTuple

from mpmath.ctx_iv import MPIntervalContext

from .scores import Point, minus

RANDOM = 12
_NEGLIGIBLE = 40  # sums over Z stop where a term is below exp(-40)
_FARTHEST = 3  # of the keys of ``grids_around`` from the kernel, along an axis

iv = MPIntervalContext()
iv.prec = 100

Number = Any  # a fraction, or an interval; mpmath has no types
Shares = Mapping[Point, Number]  # of points of Z^n; others have none


class Head(NamedTuple):
    """W_h, and p_h as if all of Z^n were keys."""

    weight: Number
    shares: Shares


def differences(heads: Iterable[Head], kernel: Shares, keys: Iterable[Point]) -> dict[Point, Number]:
    """g_z: what attention over these keys adds to a kernel that reads all of Z^n, for each point."""
    keys, change = list(keys), _negative(kernel)
    for weight, shares in heads:
        total = sum(shares.get(key, 0) for key in keys)
        for key in keys:
            change[key] += weight * shares.get(key, 0) / total
    return change


def spread(heads: Iterable[Head], kernel: Shares, sure: Iterable[Point], *, border: int = 1) -> Number:
    """sum_z |sum_h W_h p_h(z) - R(z)| + border sum_h (1 - P_h) |W_h|, P_h the sum of p_h over points that are keys."""
    sure, change, lost = list(sure), _negative(kernel), 0
    for weight, shares in heads:
        for z, share in shares.items():
            change[z] += weight * share
        lost += abs(weight) * (1 - sum(shares.get(z, 0) for z in sure))
    return sum(map(abs, change.values())) + border * lost


def _negative(kernel: Shares) -> defaultdict[Point, Number]:
    return defaultdict(int, {z: -value for z, value in kernel.items()})


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
    def by_target(self) -> dict[Point, float]:
        """The weights, by target."""
        return dict(zip(self.targets, self.weights, strict=True))

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


@cache
def gaussian_heads(kernel: Kernel) -> tuple[Head, ...]:
    """The kernel's heads, with their shares of all points that are not negligible for one of them."""
    margin = max(_FARTHEST, *map(_reach, kernel.alphas))
    window = list(product(*(range(-margin, last + margin + 1) for last in kernel.span)))
    heads = []
    for weight, alpha, target in zip(kernel.weights, kernel.alphas, kernel.targets, strict=True):
        along = {distance: _power(alpha, distance) / _theta(alpha) for distance in range(max(kernel.span) + margin + 1)}
        shares = {z: reduce(operator.mul, (along[abs(d)] for d in minus(z, target))) for z in window}
        heads.append(Head(weight, shares))
    return tuple(heads)


def smoothed_bound(kernel: Kernel, *, border: int = 1) -> Number:
    """sum_{z in Z^n} |sum_h W_h u_h(z)| + border sum_h (1 - P_h) |W_h|."""
    heads = gaussian_heads(kernel)
    spanned = product(*(range(last + 1) for last in kernel.span))
    left = sum(abs(weight) * _at_least_0(1 - sum(shares.values())) for weight, shares in heads)  # out of the window
    return spread(heads, kernel.by_target, spanned, border=border) + left


def _at_least_0(number: Number) -> Number:
    """The interval from 0 to the upper end of another."""
    return iv.mpf([0, max(number.b, 0)])


@cache
def _power(alpha: float, distance: int) -> Number:
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
def _theta(alpha: float) -> Number:
    """theta_3: the terms up to the reach, and between 0 and 2 q^(n^2) / (1 - q) for the others."""
    last, q = _reach(alpha), _power(alpha, 1)
    rest = 2 * _power(alpha, last + 1) / (1 - q)
    return 1 + 2 * sum((_power(alpha, n) for n in range(1, last + 1)), iv.mpf(0)) + iv.mpf([0, rest.b])
