"""The quadratic encoding, in symbols or in numbers, along any number of axes: points, distances and scores."""

from __future__ import annotations

from typing import Any

import sympy

Point = tuple[Any, ...]  # a number or a symbol for each axis

alpha = sympy.Symbol("alpha", real=True)
delta_1, delta_2, Delta_1, Delta_2 = sympy.symbols("delta_1 delta_2 Delta_1 Delta_2", real=True)


def coordinates(name: str, axes: int) -> Point:
    """name_1, ..., name_n."""
    return tuple(sympy.Symbol(f"{name}_{axis}", real=True) for axis in range(1, axes + 1))


def dot(left: Point, right: Point) -> Any:
    """The inner product, not simplified."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def minus(left: Point, right: Point) -> Point:
    """The difference of two points."""
    return tuple(a - b for a, b in zip(left, right, strict=True))


def squared_distance(delta: Point, center: Point) -> Any:
    """|delta - Delta|^2."""
    return sum((a - b) ** 2 for a, b in zip(delta, center, strict=True))


def encoding(delta: Point) -> Point:
    """r_delta = (|delta|^2, delta_1, ..., delta_n)."""
    return (sum(entry**2 for entry in delta), *delta)


def head_vector(center: Point, strength: Any = alpha) -> Point:
    """v = -alpha (1, -2 Delta_1, ..., -2 Delta_n)."""
    return (-strength, *(2 * strength * entry for entry in center))
