"""Sinusoidal and learned encodings: false variants are rejected."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import mpmath
import sympy
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.proofs.claims.other_encodings.learned import attends_to_target, is_strict_maximum, learned_failures
from conv2attn.proofs.claims.other_encodings.sinusoidal import (
    best_gap_failures,
    criterion_failures,
    curvature_failures,
    encoding_failures,
    nearest_gap,
    separates,
    zero_failures,
)
from conv2attn.proofs.prover.claim import Failures

FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "a minus in the encoding": partial(encoding_failures, sign=-1),
    "period pi": partial(zero_failures, period=sympy.pi),
    "period 4 pi": partial(zero_failures, period=4 * sympy.pi),
    "multiples of pi": partial(
        criterion_failures, criterion=lambda f, n: not any((f * d).is_integer for d in range(1, n))
    ),
    "offsets up to n": partial(criterion_failures, criterion=lambda f, n: separates(f, n + 1)),
    "offsets up to n - 2": partial(criterion_failures, criterion=lambda f, n: separates(f, n - 1)),
    "only w (n - 1) < 2 pi": partial(criterion_failures, criterion=lambda f, n: bool(f * (n - 1) < 2)),
    "the gap of the neighbour": partial(criterion_failures, gap=lambda f, n: 1 - sympy.cos(sympy.pi * f)),
    "twice the gap": partial(criterion_failures, gap=lambda f, n: 2 * nearest_gap(f, n)),
    "the gap with a plus": partial(criterion_failures, gap=lambda f, n: 2 - nearest_gap(f, n)),
    "a steeper chord": partial(curvature_failures, slope=3 / sympy.pi),
    "a flatter chord": partial(curvature_failures, slope=1 / sympy.pi),
    "an alpha of 1 / w^2": partial(curvature_failures, order=1),
    "w = pi / n as the best": partial(best_gap_failures, turn=lambda n: sympy.Rational(1, 2 * n)),
    "a gap beyond the best": partial(best_gap_failures, turn=lambda n: sympy.Rational(1, n - 1)),
    "learned: maxima that are not strict": partial(
        learned_failures, criterion=lambda table, center: table[center] == max(table.values())
    ),
    "learned: larger than the neighbours only": partial(
        learned_failures, criterion=lambda table, c: all(table[d] < table[c] for d in (c - 1, c + 1) if d in table)
    ),
    "learned: the smallest score": partial(
        learned_failures, criterion=lambda table, c: is_strict_maximum({d: -score for d, score in table.items()}, c)
    ),
}


@given(st.integers(2, 7), st.floats(0.01, 0.99), st.floats(0.1, 50))
def test_the_alpha_of_sinusoids_lies_between_its_two_bounds(n: int, share: float, alpha: float) -> None:
    with mpmath.workdps(60):
        w = share * mpmath.pi / (n - 1)

        def tail(losses: Callable[[int], mpmath.mpf], strength: mpmath.mpf, target: int) -> mpmath.mpf:
            axis = mpmath.fsum(mpmath.exp(-strength * losses(k - target)) for k in range(n) if k != target)
            return axis * (2 + axis) / (1 + axis) ** 2

        for target in range(n):
            quadratic = tail(lambda d: d * d, alpha, target)
            low = tail(lambda d: 1 - mpmath.cos(w * d), 2 / w**2 * alpha, target)
            high = tail(lambda d: 1 - mpmath.cos(w * d), mpmath.pi**2 / (2 * w**2) * alpha, target)
            assert high < quadratic < low


def test_a_frequency_may_serve_the_middle_of_a_grid_and_not_its_corner() -> None:
    n, frequency = 5, sympy.Rational(1, 2)  # w = pi / 2: w d = 2 pi at d = 4, which only corners see
    assert not separates(frequency, n)
    assert separates(frequency, n // 2 + 1)


def test_learned_tables_need_a_strict_maximum_only_where_offsets_occur() -> None:
    column = {0: 0}
    for low, high in product((0, 5), repeat=2):
        row = {-1: low, 0: 3, 1: high}
        assert attends_to_target(row, column, size=(2, 1), center=(0, 0)) == (max(low, high) < 3)
