"""The quadratic encoding does what section 2 of the theorem's proof says it does."""

import itertools
import math
from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.arguments import Size
from conv2attn.convert.heads.encoding import (
    head_vectors,
    positional_scores,
    relative_encoding,
    scores_are_exact,
    smallest_gap,
)

POSITIONS = st.tuples(st.integers(-40, 40), st.integers(-40, 40))
POWERS_OF_TWO = st.integers(-10, 10).map(lambda exponent: 2.0**exponent)


def scores_at(deltas: list[tuple[int, int]], center: tuple[int, int], alpha: float) -> torch.Tensor:
    """r_delta . v for one head, [len(deltas)]."""
    vectors = head_vectors(torch.tensor([alpha]), torch.tensor([center], dtype=torch.float32))
    encoding = relative_encoding(torch.tensor(deltas, dtype=torch.float32))
    return positional_scores(encoding.unsqueeze(0), vectors)[0, 0]


@given(POSITIONS, POSITIONS, POWERS_OF_TWO)
def test_the_score_is_minus_alpha_times_the_squared_distance_up_to_a_constant(
    delta: tuple[int, int], center: tuple[int, int], alpha: float
) -> None:
    distance = (delta[0] - center[0]) ** 2 + (delta[1] - center[1]) ** 2
    constant = center[0] ** 2 + center[1] ** 2
    assert scores_at([delta], center, alpha).item() == -alpha * distance + alpha * constant


@given(POSITIONS, POSITIONS, POWERS_OF_TWO)
def test_the_center_wins_by_a_gap_of_at_least_alpha(
    delta: tuple[int, int], center: tuple[int, int], alpha: float
) -> None:
    at_center, elsewhere = scores_at([center, delta], center, alpha).tolist()
    assert delta == center or at_center - elsewhere >= alpha


def test_scores_are_exact_up_to_the_last_integer_that_binary32_holds() -> None:
    def exact(rows: int, columns: int, center: tuple[float, float] = (0.0, 0.0), alpha: float = 128.0) -> bool:
        return scores_are_exact(torch.float32, Size(rows, columns), alpha=[alpha], centers=[center])

    assert exact(4097, 1)  # 4096^2 = 2^24
    assert exact(1, 4097)
    assert not exact(4097, 2)
    assert not exact(2, 4097)
    assert exact(2, 4096, (0.0, 1.0))  # 1 + 4095^2 + 2 * 4095 = 2^24
    assert exact(4096, 2, (-1.0, 0.0))
    assert not exact(3, 4096, (0.0, 1.0))
    assert not exact(4096, 2, (-1.0, 1.0))
    assert exact(2, 1, alpha=2.0**127)
    assert exact(1, 1, alpha=2.0**127)
    assert exact(2, 2, alpha=2.0**126)
    assert not exact(2, 2, alpha=2.0**127)
    assert exact(2, 2, alpha=2.0**-126)
    assert not exact(2, 2, alpha=2.0**-127)


@given(
    axes=st.integers(1, 3),
    alpha=st.one_of(st.floats(104, 128), st.floats(746, 1100), st.sampled_from([128.0, 1024.0])),
    exponents=st.tuples(*[st.floats(0, 29)] * 3),
    far=st.tuples(*[st.integers(-(2**28), 2**28)] * 3),
)
def test_the_smallest_gap_is_below_every_gap_in_double_precision(
    axes: int, alpha: float, exponents: tuple[float, ...], far: tuple[int, ...]
) -> None:
    center = tuple(float(int(2**exponent)) for exponent in exponents[:axes])
    deltas = [
        [c + step for c, step in zip(center, near, strict=True)] for near in itertools.product((-1, 0, 1), repeat=axes)
    ]
    target = deltas.pop(3**axes // 2)
    deltas += [[0.0] * axes, [-c for c in center], [float(c) for c in far[:axes]]]
    keys = torch.tensor([target, *(delta for delta in deltas if delta != target)], dtype=torch.float64)
    vectors = head_vectors(torch.tensor([alpha]).double(), torch.tensor([center], dtype=torch.float64))
    scores = positional_scores(relative_encoding(keys.unsqueeze(0)), vectors)[0, 0]
    assert float((scores[0] - scores[1:]).min()) >= smallest_gap(float(torch.tensor(alpha)), center)


def test_the_smallest_gap_is_alpha_less_what_each_rounding_may_take() -> None:
    for center in ((0.0,), (1.0,), (2.0, 0.0), (0.0, 3.0, 4.0), (1e6,)):
        reach = Fraction(math.hypot(*center))  # a whole number
        roundings, terms = 2 * len(center) + 4, 1 + 4 * reach + 6 * reach**2
        expected = 3 * (1 - Fraction(roundings, 2**53) * terms)
        assert abs(Fraction(smallest_gap(3.0, center)) - expected) <= Fraction(3, 2**52)  # two roundings


@given(
    st.sampled_from([200, 500, 1000, 2000, 2700]),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.sampled_from([1.0, 128.0, 2.0**-3]),
)
def test_scores_called_exact_are_exact_at_the_far_corner(side: int, center: tuple[int, int], alpha: float) -> None:
    grid = Size(side, side // 2)
    if scores_are_exact(torch.float32, grid, alpha=[alpha], centers=[center]):
        corner = (1 - grid.rows, 1 - grid.columns)
        exact = -(corner[0] ** 2 + corner[1] ** 2) + 2 * (center[0] * corner[0] + center[1] * corner[1])
        assert scores_at([corner], center, alpha).item() == alpha * exact
