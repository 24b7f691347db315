"""While ``right_convolutions`` lasts, torch's functions compute what they say, whatever they are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.certificate import reference
from conv2attn.convert.certificate.reference import right_convolutions

Convolution = Callable[..., Tensor]
FORWARD: list[Convolution] = [F.conv1d, F.conv2d, F.conv3d]
TRANSPOSED: list[Convolution] = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"dilation": 2},
    {"stride": (2,), "padding": [1], "dilation": (2,)},
]
OF_FORWARD: list[dict[str, Any]] = [{"padding": "valid"}, {"padding": "same"}, {"padding": "same", "dilation": 3}]
OF_TRANSPOSED: list[dict[str, Any]] = [{"stride": 3, "output_padding": 2}, {"stride": 2, "output_padding": (1,)}]


def integers(*size: int) -> Tensor:
    """Small whole numbers, whose sums of products every order of summation gets right."""
    return torch.randint(-4, 5, size, dtype=torch.float64)


def assert_same_in_both(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> None:
    """Compares a function with itself, in and out of the context; torch gets these sizes right in double precision."""
    expected = function(*args, **kwargs)
    with right_convolutions() as faults:
        found = function(*args, **kwargs)
    assert torch.equal(found, expected)
    assert faults == []


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    ("functions", "every"), [(FORWARD, [*OPTIONS, *OF_FORWARD]), (TRANSPOSED, [*OPTIONS, *OF_TRANSPOSED])]
)
def test_a_convolution_is_that_of_torch_with_every_option(
    functions: list[Convolution], every: list[dict[str, Any]], axes: int
) -> None:
    x, weight, bias = integers(2, 3, *(7, 9, 8)[:axes]), integers(3, 3, *(2, 3, 2)[:axes]), integers(3)
    for options in every:
        assert_same_in_both(functions[axes - 1], x, weight, **options)
        assert_same_in_both(functions[axes - 1], x[0], weight, bias, **options)


def test_options_may_differ_from_axis_to_axis_and_come_by_position() -> None:
    x, weight, bias = integers(2, 4, 9, 11), integers(6, 2, 2, 3), integers(6)
    assert_same_in_both(F.conv2d, x, weight, bias, (2, 3), (0, 2), (1, 2), 2)
    assert_same_in_both(F.conv2d, x, weight, bias, groups=2, padding="same", dilation=(3, 2))
    assert_same_in_both(F.conv2d, input=x, weight=weight, groups=2)
    x, weight, bias = integers(2, 4, 3, 5), integers(4, 3, 2, 3), integers(6)
    assert_same_in_both(F.conv_transpose2d, x, weight, bias, (2, 3), (0, 2), (1, 2), 2, (1, 2))


def test_other_functions_are_left_alone() -> None:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    with right_convolutions():
        assert torch.equal(F.softmax(x, dim=1), x.softmax(1))
        assert torch.equal(torch.add(x, x, alpha=2), 3 * x)


@pytest.mark.parametrize("transposed", [False, True])
def test_autocast_rounds_the_input_and_the_parameters(transposed: bool) -> None:
    function: Any = F.conv_transpose2d if transposed else F.conv2d
    x, weight, bias = (torch.randn(size) + 0.1 for size in ((1, 2, 4, 5), (2, 2, 2, 3), (2,)))
    halves = [tensor.bfloat16() for tensor in (x, weight, bias)]
    with right_convolutions():
        expected, without = function(*halves), function(*halves[:2])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(function(x, weight, bias), expected)
            assert torch.equal(function(x, weight), without)
            assert function(x.double(), weight.double()).dtype == torch.float64
    assert expected.dtype == torch.bfloat16


@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
def test_what_torch_is_not_trusted_with_is_noted_once(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter(["one", None, "one", "another"])
    asked = []

    def known_fault(x: Tensor, weight: Tensor, geometry: Any, size: Any = None) -> str | None:
        asked.append(size)
        return next(faults)

    monkeypatch.setattr(reference, "known_fault", known_fault)
    x, weight = torch.ones(1, 2, 4, 5), torch.ones(2, 2, 2, 3)
    with right_convolutions() as found:
        for _ in range(4):
            size = function(x, weight, stride=2).shape[2:]
    assert found == ["one", "another"]
    assert asked == [None if function is F.conv2d else tuple(size)] * 4
