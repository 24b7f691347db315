"""Roundings are as many as were counted by hand, and attention and norms err by their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from conv2attn.convert.bounds.rounding import EXP_ULPS, OUTWARD, gamma
from conv2attn.convert.certificate.network.interval import Interval, UnboundedError
from conv2attn.convert.certificate.network.table import ACTIVATION_ULPS, TABLE
from tests.convert.certificate.network.operations import OPERATIONS, Operation, aten, box, numbers

UNIT = 2.0**-24  # of single precision
OUTWARDS = 64 * (OUTWARD - 1)  # results are moved outwards, fewer times than this
ACTIVATED = (2 * ACTIVATION_ULPS, 1)
# name: (terms, narrowings) of each call in OPERATIONS
COUNTED: dict[str, list[tuple[int, int]]] = {
    "conv1d": [(2 * 3 + 1, 1)],
    "conv2d": [(2 * 3 * 2 + 1, 1), (4 * 3 * 3 + 1, 1), (2 * 3 * 2 + 1, 1)],
    "conv3d": [(4 * 2 * 2 + 1, 1)],
    "conv_transpose1d": [(4 * 3 + 1, 3 + 2)],
    "conv_transpose2d": [(4 // 2 * 2 * 3 + 1, 2 * 3 + 2)],
    "conv_transpose3d": [(4 * 2 * 2 + 1, 2 * 2 + 2)],
    "linear": [(5 + 1, 2), (4 + 1, 1), (5 + 1, 2), (5 + 1, 2)],
    "_native_batch_norm_legit_no_training": [(8, 7)],
    "batch_norm": [(8, 7), (2 * 6 * 5 + 16, 7), (2 * 6 + 16, 7)],  # by the image's own statistics: as layer norm
    "_native_batch_norm_legit": [(2 * 6 * 5 + 16, 7)],
    "avg_pool1d": [(3 + 1, 1)],
    "avg_pool2d": [(3 * 2 + 1, 1)],
    "avg_pool3d": [(2 * 2 + 1, 1)],
    "adaptive_avg_pool1d": [(3 + 2, 1)],  # 7 pixels in 4 windows: 2, 3, 3, 2
    "adaptive_avg_pool2d": [(2 * 3 + 2, 1)],  # 6 in 4: 2 each; 5 in 2: 3 each
    "adaptive_avg_pool3d": [(1 * 3 * 2 + 2, 1 * 3 * 2 + 3), (2 * 5 * 4 + 2, 1)],
    "mean": [(6 * 5 + 1, 1), (4 + 1, 1), (2 * 4 * 6 * 5 + 1, 1)],
    "sum": [(6 * 5, 1)],
    "upsample_linear1d": [(8, 4)] * 2,
    "upsample_bilinear2d": [(16, 7)] * 2,
    **{name: [ACTIVATED] for name in ("sigmoid", "tanh", "hardsigmoid", "silu", "gelu", "hardswish")},
    "elu": [ACTIVATED] * 3,
    "leaky_relu": [ACTIVATED] * 3,
    "prelu": [ACTIVATED] * 2,
    "glu": [(2 * ACTIVATION_ULPS + 1, 2)],
    "add": [(2, 1), (2, 1), (2, 1), (2, 2)],
    "sub": [(2, 1)] * 2,
    "rsub": [(2, 1)],
    "mul": [(1, 1)] * 3,
    "div": [(2, 1)] * 4,
    "layer_norm": [(2 * 5 + 16, 7), (2 * 6 * 5 + 16, 7)],
    "group_norm": [(2 * 2 * 6 * 5 + 16, 7)],
    "instance_norm": [(2 * 6 * 5 + 16, 7)],
    "softmax": [(5 + 4 * EXP_ULPS + 4, 3), (4 + 4 * EXP_ULPS + 4, 3)],
    "matmul": [(5, 1)],
    "bmm": [(5, 1)],
    "mm": [(5, 1)],
    "addmm": [(5 + 3, 3)],
    "baddbmm": [(5 + 3, 3)],
    "mv": [(5, 1)],
    **{name: [(7, 1)] for name in ("dot", "vdot")},
    **{name: [(1, 1)] for name in ("reciprocal", "square")},
    "sqrt": [(2, 1)],  # torch's errs by 1.49 roundings
    "rsqrt": [(3, 2)],
    **{name: [ACTIVATED] for name in ("exp", "sin", "cos")},
    "pow": [(2 * ACTIVATION_ULPS, 2)] * 10,
    "linalg_vector_norm": [(4 * 6 + 2, 1), (2 * 4 * 6 * 5 + 2, 1)],
    "var": [(2 * 6 * 5 + 16, 1), (2 * 2 * 4 * 6 * 5 + 16, 1)],
    "std": [(2 * 4 * 5 + 16, 1)],
    "var_mean": [(2 * 6 * 5 + 16, 1)],
}


def counted(operation: Operation) -> tuple[int, int]:
    call = operation.call([box(numbers(*shape)) for shape in operation.shapes], torch.float32)
    terms, narrowings = TABLE[call.name].terms, TABLE[call.name].narrowings
    assert terms is not None
    return terms(call), narrowings(call)


def test_each_operation_rounds_as_often_as_was_counted_by_hand() -> None:
    assert {name: [counted(one) for one in OPERATIONS[name]] for name in COUNTED} == COUNTED
    assert {name for name in OPERATIONS if TABLE[name].terms is not None} == set(COUNTED)


def points(*values: Tensor) -> list[Interval]:
    return [Interval.point(value) for value in values]


@pytest.mark.parametrize("keys", [5, 40])
def test_attention_errs_by_the_roundings_of_its_shares_and_of_its_sums(keys: int) -> None:
    """Scores of 0 give each of so many keys its share exactly; only the counted roundings are left."""
    operation = Operation(aten.scaled_dot_product_attention.default, shape=(1, 2, 3, 4), inputs=3)
    query, key = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, keys, 4)
    found = operation.bound(points(query, key, torch.ones(1, 2, keys, 4)), torch.float32, repeatable=False)
    terms = keys + (keys // 16 + 2) * (2 * EXP_ULPS + 2)
    shares, sums = gamma(terms, UNIT), gamma(terms + keys, UNIT)
    assert found.error.flatten() == pytest.approx(2 * (shares + sums * (1 + shares)), rel=OUTWARDS, abs=0)


def test_attention_scales_scores_by_the_root_of_their_depth() -> None:
    operation = Operation(aten.scaled_dot_product_attention.default, shape=(1, 2, 7, 4), inputs=3)
    values = [numbers(1, 2, 7, 4, seed=seed) for seed in range(3)]
    found, expected = operation.bound(points(*values), torch.float64), operation.run(values)
    assert bool(((found.low <= expected) & (expected <= found.high)).all())
    assert float((found.high - found.low).max()) < 16 * OUTWARDS  # scores are moved, whose terms add up to 16 at most


@pytest.mark.parametrize("name", ["layer_norm", "group_norm"])
def test_a_norm_errs_by_the_roundings_of_its_mean_and_its_variance(name: str) -> None:
    """Of 3 and 1, in float16, with a weight of 2: mean 2, mean square 5 and variance 1."""
    weight, bias = torch.full((2,), 2.0), torch.zeros(2)
    arguments = ([2], weight, bias, 0.0) if name == "layer_norm" else (1, weight, bias, 0.0)
    operation = Operation(getattr(aten, name).default, arguments, (1, 2))
    found = operation.bound(points(torch.tensor([[3.0, 1.0]])), torch.float16, repeatable=False)
    smallest, step = 2.0**-126, 2.0**-24
    summed = gamma(2 * 2 + 16, UNIT)
    relative = (1 + summed) * (1 + 2.0**-11) ** 7 - 1
    share = 2 * math.sqrt(5) + 5 * summed if name == "layer_norm" else 2 * 5
    for error, spread in zip(found.error.flatten(), (3 + 2, 1 + 2), strict=True):  # |x| and its mean
        lost = 5 * 2 * smallest + step + 8 * (smallest + step) * (1 + 1 + spread)
        rounding = 2 * (spread + share) * relative + (2 * lost + 108 * smallest + 7 * step) * (1 + relative)
        assert float(error) == pytest.approx(2 * rounding, rel=OUTWARDS, abs=0)


def test_a_norm_loses_what_its_squares_lose_where_they_are_taken_for_0() -> None:
    """Of 2^-100 and its negative, whose squares vanish beside eps: a share of eps goes with them."""
    operation = Operation(aten.layer_norm.default, ([2], None, None, 2.0**-120), (1, 2))
    found = operation.bound(points(torch.tensor([[2.0**-100, -(2.0**-100)]])), torch.float32, repeatable=False)
    smallest, size, vanished = 2.0**-126, 2.0**-40, 5 * 2 * 2.0**-126 / 2.0**-120
    lost = size * vanished + 8 * smallest * (1 + 2.0**60)
    rounding = 2 * size * gamma(20, UNIT) + lost * (1 + gamma(20, UNIT))
    assert found.error.flatten() == pytest.approx(2 * rounding, rel=OUTWARDS, abs=0)


def test_a_product_of_zeros_loses_what_subnormal_factors_may_hold() -> None:
    operation = Operation(aten.mm.default, shape=(1, 5), inputs=2, others=((5, 1),))
    found = operation.bound(points(torch.ones(1, 5), torch.zeros(5, 1)), torch.float32, repeatable=False)
    smallest = 2.0**-126
    assert float(found.error) == pytest.approx(
        2 * (2 * 5 + 5 * 5) * smallest * (1 + gamma(5, UNIT)), rel=OUTWARDS, abs=0
    )


def test_a_linear_layer_of_zeros_loses_what_subnormal_inputs_may_hold() -> None:
    operation = Operation(aten.linear.default, (torch.ones(3, 5), None), (1, 5))
    found = operation.bound(points(torch.zeros(1, 5)), torch.float32, repeatable=False)
    expected = 2 * (2 * 3 * 5 + 5 * 6) * 2.0**-126 * (1 + gamma(6, UNIT))
    assert found.error.flatten() == pytest.approx(expected, rel=OUTWARDS, abs=0)


def test_batch_norm_of_zeros_loses_a_subnormal_number_before_the_weight_multiplies_it() -> None:
    """In float16: of 0, with a variance of 1 and a weight of 3, nothing else is left but seven roundings of 0."""
    held = (torch.tensor([3.0]), None, torch.zeros(1), torch.ones(1), False, 0.1, 0.0, True)
    found = Operation(aten.batch_norm.default, held, (1, 1, 1, 1)).bound(
        points(torch.zeros(1, 1, 1, 1)), torch.float16, repeatable=False
    )
    smallest, step = 2.0**-126, 2.0**-24
    relative = (1 + gamma(8, UNIT)) * (1 + 2.0**-11) ** 7 - 1
    lost = smallest * 8 * (1 + 3 + 2) + 3 * step + 5 * 8 * smallest + 7 * step
    assert float(found.error) == pytest.approx(2 * lost * (1 + relative), rel=OUTWARDS, abs=0)


@pytest.mark.parametrize("factor", ["alpha", "beta"])
def test_a_product_with_a_factor_has_no_bound(factor: str) -> None:
    operation = Operation(aten.addmm.default, shape=(3, 4), inputs=3, others=((3, 5), (5, 4)), kwargs=((factor, 2),))
    with pytest.raises(UnboundedError, match="with factors"):
        operation.bound([box(numbers(*shape)) for shape in operation.shapes], torch.float32)
