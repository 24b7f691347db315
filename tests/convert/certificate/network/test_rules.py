"""What an operation makes of bounds holds for what torch computes, in every precision."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from conv2attn.convert.certificate.network import moved as moving
from conv2attn.convert.certificate.network import products as weighted
from conv2attn.convert.certificate.network.interval import Interval, UnboundedError
from conv2attn.convert.certificate.network.table import TABLE
from tests.convert.certificate.network.operations import (
    DTYPES,
    HALF,
    OPERATIONS,
    SHAPE,
    Operation,
    aten,
    box,
    numbers,
)

# What only moves numbers has one rule, which is tested with an operation of each kind, as are other names of the same.
ALIKE = {*moving.MOVES, *moving.MADE, "dropout", "feature_dropout", "native_dropout", "_to_copy", "to"}
LINEAR = ("conv1d", "conv2d", "conv_transpose2d", "linear", "avg_pool2d", "mean", "upsample_bilinear2d", "div")


def inputs_of(operation: Operation, dtype: torch.dtype, trial: int) -> list[Tensor]:
    return [operation.drawn(place, 7 * trial + place).to(dtype) for place in range(len(operation.shapes))]


def near(x: Tensor, width: float, trial: int) -> Tensor:
    """Numbers of x's precision that are about so near: random, or as far as that."""
    generator = torch.Generator().manual_seed(trial)
    steps = torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (x.double() + width * (steps.sign() if trial % 2 else steps)).to(x)


def test_every_rule_is_tested() -> None:
    assert set(TABLE) - set(OPERATIONS) <= ALIKE


def precisions(name: str) -> tuple[torch.dtype, ...]:
    """Those in which an operation may go wrong in its own way: one where numbers are moved, all where they round."""
    if name in moving.MOVES:
        return (torch.float32,)
    return DTYPES if name != "avg_pool3d" else (torch.float64, torch.float32)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_stays_within_its_bounds(name: str) -> None:
    """Two inputs of a box, nearer to each other than its error, at its ends and inside."""
    for operation, dtype, trial in itertools.product(OPERATIONS[name], precisions(name), range(6)):
        middles = inputs_of(operation, dtype, trial)
        found = operation.bound([box(x, error=2.0**-5) for x in middles], dtype)  # and bfloat16 rounds by 2^-8 at 2
        first = [near(x, 0.21, trial) for x in middles]
        second = [near(x, 2.0**-6, trial + 51) for x in first]
        one, other = (operation.run(inputs).double() for inputs in (first, second))
        for output in (one, other):
            assert bool(((found.low <= output) & (output <= found.high)).all())
        assert bool(((one - other).abs() <= found.error).all())


@pytest.mark.parametrize("hypothesis", ["once", "any order"])
@pytest.mark.parametrize("name", [name for name in OPERATIONS if TABLE[name].terms is not None])
def test_one_program_rounds_no_more_than_its_hypothesis_says(name: str, hypothesis: str) -> None:
    for operation, trial in itertools.product(OPERATIONS[name], range(4)):
        inputs = inputs_of(operation, torch.float32, trial)
        points = [Interval.point(x) for x in inputs]
        allowed = operation.bound(points, torch.float32, repeatable=False, hypothesis=hypothesis).error
        exact = operation.run([x.double() for x in inputs], torch.float32)
        computed = exact.float().double() if hypothesis == "once" else operation.run(inputs).double()
        assert bool(((computed - exact).abs() <= allowed).all()), operation


def interpolated(dtype: torch.dtype, size: int, scale: float, *, corners: bool) -> Tensor:
    """The error of each weight of linear interpolation, as a multiple of what is counted: [pixels, outputs]."""
    operation = Operation(aten.upsample_linear1d.vec, (None, corners, [scale]), (size, 1, size))
    impulses = torch.eye(size, dtype=dtype).unsqueeze(1)
    counted = operation.bound([Interval.point(impulses)], dtype, repeatable=False).error / 2
    apart = (operation.run([impulses]).double() - operation.run([impulses.double()], dtype)).abs()
    return (apart / counted.clamp(min=1e-300)).squeeze(1)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_a_weight_of_0_that_is_computed_as_another_number_is_within_the_rounding(dtype: torch.dtype) -> None:
    for size, scale, corners in ((100, 1.88, True), (64, 3.9, False), (500, 0.97, False), (2, 2.4, False)):
        assert float(interpolated(dtype, size, scale, corners=corners).max()) <= 1, (size, scale, corners)


@pytest.mark.fault
def test_places_of_interpolation_that_are_taken_for_exact_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted, "unit_roundoff", lambda dtype: 0.0)
    shown = [float(interpolated(dtype, 64, 3.9, corners=False).max()) for dtype in (torch.float32, *HALF)]
    assert min(shown) > 1


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_map_s_error_is_reached(name: str) -> None:
    operation = OPERATIONS[name][0]
    (x,) = inputs_of(operation, torch.float64, 0)
    found = operation.bound([box(x, error=0.125, width=0.5)], torch.float64)
    moved = x.clone().requires_grad_()
    output = operation.run([moved])
    place = output.flatten()[:1]
    (slope,) = torch.autograd.grad(place, moved)
    apart = operation.run([x + 0.125 * slope.sign()]) - operation.run([x])
    assert float(apart.flatten()[0]) == pytest.approx(float(found.error.flatten()[0]), rel=1e-6)
    assert float(found.high.flatten()[0]) == pytest.approx(
        float(operation.run([x + 0.5 * slope.sign()]).flatten()[0]), rel=1e-6
    )


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "softmax", "scaled_dot_product_attention"])
def test_a_normalisation_s_error_is_that_of_its_gradient_where_differences_are_small(name: str) -> None:
    operation = OPERATIONS[name][0]
    inputs = inputs_of(operation, torch.float64, 1)
    size = 1e-7
    found = operation.bound([Interval(x - size, x + size, torch.full_like(x, size)) for x in inputs], torch.float64)
    moved = [x.clone().requires_grad_() for x in inputs]
    slopes = torch.autograd.grad(operation.run(moved).flatten()[3], moved)
    reached = size * sum(float(slope.abs().sum()) for slope in slopes)
    assert reached <= float(found.error.flatten()[3]) * (1 + 1e-6)
    assert float(found.error.flatten()[3]) <= 4 * reached


REFUSED: dict[str, tuple[Operation, str]] = {
    "gelu": (Operation(aten.gelu.default, kwargs=(("approximate", "tanh"),)), "approximate='tanh'"),
    "elu": (Operation(aten.elu.default, (-0.5,)), "negative factor"),
    "scaled": (Operation(aten.elu.default, (1.0, 1.0, 2.0)), "factor of its input"),
    "training": (Operation(aten.dropout.default, (0.5, True)), "draws random numbers"),
    "batch": (
        Operation(aten.batch_norm.default, (None, None, None, None, True, 0.1, 1e-5, True)),
        "statistics from the batch",
    ),
    "divisor": (Operation(aten.avg_pool2d.default, ([2, 2], [], [0, 0], False, True, 3)), "divisor"),
    "quotient": (Operation(aten.div.Tensor, (-2.0,)), "small or negative"),
    "divided": (Operation(aten.div.Tensor, inputs=2), "small or negative"),
    "root": (Operation(aten.sqrt.default), "small or negative"),
    "norm": (Operation(aten.linalg_vector_norm.default, (1,)), "another norm"),
    "powers": (Operation(aten.pow.Tensor_Tensor, inputs=2), "a power of two tensors"),
    "places": (
        Operation(aten.index_put.default, ([torch.tensor([1, 1])], numbers(2, 4, 6, 5))),
        "places that repeat",
    ),
    "pixels": (Operation(aten.upsample_nearest1d.vec, ([44], None), (1, 1, 26)), "chooses others"),
    "between": (Operation(aten.hardtanh.default, (1.0, 0.5)), "between the limits"),
    "causal": (
        Operation(aten.scaled_dot_product_attention.default, inputs=3, kwargs=(("is_causal", True),)),
        "mask",
    ),
    "masked": (Operation(aten.scaled_dot_product_attention.default, shape=(1, 2, 4, 4), inputs=4), "mask"),
    "padding": (Operation(aten.max_pool2d.default, ([2, 2], [3, 3], [1, 1], [6, 6])), "padding alone"),
    "far": (Operation(aten.mul.Tensor, (1e30,)), "largest number"),
    "unknown": (Operation(aten.erfinv.default), "no bound is known for erfinv"),
    "bits": (Operation(aten.view.dtype, (torch.int32,)), "reads bits"),
    "weight": (Operation(aten.prelu.default, inputs=2, others=((4,),)), "its weight is computed while it runs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_bound_says_why(name: str) -> None:
    operation, reason = REFUSED[name]
    inputs = [box(numbers(*shape) * (1e10 if name == "far" else 1)) for shape in operation.shapes]
    with pytest.raises(UnboundedError, match=reason):
        operation.bound(inputs, torch.float32)


@pytest.mark.parametrize(("variance", "eps"), [(0.0, 1e-46), (-1.0, 0.5), (math.nan, 1.0)])
def test_a_variance_that_may_vanish_is_not_divided_by(variance: float, eps: float) -> None:
    held = (None, None, torch.zeros(4), torch.full((4,), variance), False, 0.1, eps, True)
    with pytest.raises(UnboundedError, match="may vanish"):
        Operation(aten.batch_norm.default, held).bound([box(numbers(*SHAPE))], torch.bfloat16)


@pytest.mark.parametrize(
    "operation",
    [
        Operation(aten.conv2d.default, (torch.tensor([3.0, -3.0] * 8).view(1, 1, 4, 4),), (1, 1, 4, 4)),
        Operation(aten.linear.default, (torch.tensor([[3.0, -3.0] * 8]),), (1, 16)),
        Operation(aten.mean.dim, ([1],), (1, 16)),
        Operation(aten.add.Tensor, inputs=2, shape=(1, 16)),
    ],
)
def test_what_may_overflow_on_the_way_has_no_bound(operation: Operation) -> None:
    large = [Interval.point(torch.full(tuple(shape), 3e38)) for shape in operation.shapes]
    with pytest.raises(UnboundedError, match="largest number"):
        operation.bound(large, torch.float32)


def test_equal_numbers_give_equal_numbers_where_a_call_is_repeatable() -> None:
    exact = {
        *moving.MOVES,
        "pad",
        "constant_pad_nd",
        "relu",
        "relu6",
        "hardtanh",
        "clamp",
        "clamp_min",
        "clamp_max",
        "abs",
        "neg",
    }
    for name, operations in OPERATIONS.items():
        for operation in operations:
            points = [Interval.point(x) for x in inputs_of(operation, torch.float32, 0)]
            assert operation.bound(points, torch.float32).is_equal
            repeated = operation.bound(points, torch.float32, repeatable=False)
            assert repeated.is_equal == (name in exact)
