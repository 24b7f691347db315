"""Claim 4: unique maximum, one-hot limit, tail; false variants are rejected, and the code agrees."""

from __future__ import annotations

from functools import partial

import mpmath
import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.bounds.tail import tail_fraction
from conv2attn.convert.heads.encoding import head_vectors, relative_encoding
from conv2attn.proofs.claims.certificate.tail import (
    CUT,
    FIRST_ORDER,
    MAJORANT,
    SHARP_BOUND,
    SIMPLE_BOUND,
    N,
    bound_failures,
    grid_failures,
    majorant_failures,
    partial_tail,
)
from conv2attn.proofs.claims.common.scores import squared_distance
from conv2attn.proofs.claims.theorem.one_hot import (
    COUNT,
    Q,
    gap_failures,
    limit_failures,
    rate_failures,
    symbolic_distances,
)
from conv2attn.proofs.prover.claim import Failures

FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "a gap of 2": partial(gap_failures, gap=2),
    "no gap": partial(gap_failures, gap=0),
    "a minus in the distance": partial(
        gap_failures, distance=lambda d, D: 2 * (d[0] - D[0]) ** 2 - squared_distance(d, D)
    ),
    "a plus before the centre": partial(gap_failures, distance=lambda d, D: squared_distance(d, tuple(-c for c in D))),
    "half a distance": partial(gap_failures, distance=lambda d, D: squared_distance(d, D) / 2),
    "one axis only": partial(gap_failures, distance=lambda d, D: (d[0] - D[0]) ** 2),
    "a faster rate": partial(rate_failures, bound=1 - COUNT * Q / 2),
    "a rate without the number of keys": partial(rate_failures, bound=1 - Q),
    "a limit of 1/2": partial(rate_failures, limit=0.5),
    "the others get something": partial(limit_failures, others=1),
    "a rival at distance 0": partial(limit_failures, distances=lambda n: (0, *symbolic_distances(n - 1))),
    "falling exponents": partial(majorant_failures, exponent=lambda n: 2 - n),
    "exponents below n": partial(majorant_failures, exponent=lambda n: n / 2),
    "a majorant without the factor 2": partial(majorant_failures, majorant=1 / (1 - Q)),
    "theta instead of its power": partial(bound_failures, sharp=2 * Q / (1 + Q)),
    "a sharp bound with the other sign": partial(bound_failures, sharp=((1 + Q) / (1 - Q)) ** N - 1),
    "half the simple bound": partial(bound_failures, simple=SIMPLE_BOUND / 2),
    "a simple bound that falls": partial(bound_failures, simple=2 * N * Q * (1 - Q)),
    "a constant of 2 n - 1": partial(bound_failures, first_order=2 * N - 1),
    "a constant of 4": partial(bound_failures, first_order=4),
    "the squared majorant": partial(bound_failures, majorant=MAJORANT**2),
    "a power too few": partial(grid_failures, fewer=1),
    "half the sharp bound": partial(bound_failures, sharp=SHARP_BOUND / 2),
    "a bound with q squared": partial(bound_failures, simple=2 * N * Q**2),
}


@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.floats(0.05, 100))
def test_the_tail_of_the_code_is_the_tail_of_the_proof(axes: int, alpha: float) -> None:
    with mpmath.workdps(240):
        q = mpmath.exp(-mpmath.mpf(alpha))
        tau = partial_tail(q, 60, axes=axes)
        assert tau <= tail_fraction(alpha, axes=axes) <= tau * (1 + mpmath.mpf(2) ** -29)  # 2^-30 covers the rounding
        bounds = (CUT, SHARP_BOUND, SIMPLE_BOUND, FIRST_ORDER * Q)
        first, sharp, simple, linear = (sympy.lambdify((Q, N), bound, "mpmath")(q, axes) for bound in bounds)
        assert first <= tau <= min(sharp, simple, linear)
        assert sharp <= simple <= linear or axes == 1  # then the first two are one number, rounded


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_the_score_of_the_code_loses_the_squared_distance(d1: int, d2: int, c1: int, c2: int) -> None:
    delta, center = torch.tensor([[d1, d2], [c1, c2]]).double(), torch.tensor([[c1, c2]]).double()
    scores = relative_encoding(delta) @ head_vectors(torch.tensor([2.0]).double(), center)[0]
    assert (scores[1] - scores[0]).item() == 2 * squared_distance((d1, d2), (c1, c2))
