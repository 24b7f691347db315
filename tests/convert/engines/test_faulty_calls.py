"""Which calls are left to torch, and which are not to be trusted: on either side of every limit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conv2attn.convert.engines import convolution
from conv2attn.convert.engines.convolution import (
    BEYOND,
    HALF,
    NARROW,
    Geometry,
    convolve,
    is_channels_last,
    is_overrun,
    known_fault,
    laid_out_like,
    spans,
)

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64

# Image, kernel, geometry (stride, padding, dilation, groups), dtype, and what may go wrong.
CALLS: dict[str, tuple[Any, ...]] = {
    "one column": ((1, 1, 9, 2), (4, 1, 3, 2), ((1, 3), (0, 1), (1, 1)), F32, NARROW),
    "one column, without a stride": ((1, 1, 9, 2), (4, 1, 3, 4), ((3, 1), (0, 1), (1, 1)), F32, None),
    "two columns": ((1, 1, 9, 3), (4, 1, 3, 2), ((1, 3), (0, 1), (1, 1)), F32, None),
    "one column, dilated": ((1, 1, 9, 3), (4, 1, 3, 2), ((1, 3), (0, 1), (1, 2)), F32, NARROW),
    "one column, of two channels": ((1, 2, 9, 2), (4, 2, 3, 2), ((1, 3), (0, 1), (1, 1)), F32, None),
    "one column, of two channels in half precision": (
        *((1, 2, 9, 2), (4, 2, 3, 2), ((1, 3), (0, 1), (1, 1))),
        *(F16, NARROW),
    ),
    "one column, of two channels in bfloat16": ((1, 2, 9, 3), (4, 2, 3, 2), ((1, 3), (0, 0), (1, 1)), BF16, NARROW),
    "one column of a sequence": ((1, 1, 2), (4, 1, 2), ((3,), (1,), (1,)), F32, NARROW),
    "one column of a sequence, of two channels": ((1, 2, 2), (4, 2, 2), ((3,), (1,), (1,)), F32, None),
    "one column of a volume, of two channels": (
        *((1, 2, 9, 9, 4), (4, 2, 3, 3, 3), ((1, 1, 2), (1, 1, 0), (1, 1, 1))),
        *(F32, NARROW),
    ),
    "8 columns in bfloat16": ((1, 2, 9, 20), (2, 2, 3, 8), ((1, 1), (0, 0), (1, 1)), BF16, HALF),
    "7 columns in bfloat16": ((1, 2, 9, 20), (2, 2, 3, 7), ((1, 1), (0, 0), (1, 1)), BF16, None),
    "8 columns in half precision": ((1, 2, 9, 20), (2, 2, 3, 8), ((1, 1), (0, 0), (1, 1)), F16, None),
    "a stride of 4 in bfloat16": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 4), (0, 0), (1, 1)), BF16, HALF),
    "a stride of 3 in bfloat16": ((1, 2, 9, 20), (2, 2, 3, 3), ((4, 3), (0, 0), (1, 1)), BF16, None),
    "dilated rows in bfloat16": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 1), (0, 0), (2, 1)), BF16, HALF),
    "dilated columns in bfloat16": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 1), (0, 0), (1, 2)), BF16, None),
    "dilated rows in half precision": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 1), (0, 0), (2, 1)), F16, None),
    "as many rows as the kernel": ((1, 2, 3, 20), (2, 2, 3, 3), ((1, 1), (0, 0), (1, 1)), BF16, None),
    "fewer rows than the kernel": ((1, 2, 2, 20), (2, 2, 3, 3), ((1, 1), (1, 0), (1, 1)), BF16, HALF),
    "as many rows as the stride": ((1, 2, 5, 20), (2, 2, 3, 3), ((5, 1), (0, 0), (1, 1)), BF16, None),
    "fewer rows than the stride": ((1, 2, 4, 20), (2, 2, 3, 3), ((5, 1), (0, 0), (1, 1)), BF16, HALF),
    "padded by less than the kernel": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 1), (2, 2), (1, 1)), BF16, None),
    "padded by as much as the kernel": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 1), (3, 2), (1, 1)), BF16, HALF),
    "taps that see only padding": ((1, 2, 9, 2), (2, 2, 3, 2), ((1, 3), (0, 2), (1, 1)), F32, BEYOND),
    "taps that see a pixel": ((1, 2, 9, 2), (2, 2, 3, 2), ((1, 3), (0, 1), (1, 1)), F32, None),
    "taps that see only padding, as wide as the stride": (
        *((1, 2, 9, 3), (2, 2, 3, 2), ((1, 3), (0, 2), (1, 1))),
        *(F32, None),
    ),
    "taps of a sequence that see only padding": ((1, 2, 2), (2, 2, 2), ((3,), (2,), (1,)), F32, BEYOND),
    "8 columns over a sequence in bfloat16": ((1, 2, 20), (2, 2, 8), ((1,), (0,), (1,)), BF16, HALF),
    "a stride of 5 over a volume in bfloat16": (
        *((1, 2, 9, 9, 9), (2, 2, 2, 2, 2), ((1, 1, 5), (0, 0, 0), (1, 1, 1))),
        *(BF16, HALF),
    ),
    "a dilated sequence in bfloat16": ((1, 2, 20), (2, 2, 3), ((1,), (0,), (2,)), BF16, None),
    "dilated rows of a volume in bfloat16": (
        *((1, 2, 9, 9, 9), (2, 2, 2, 2, 2), ((1, 1, 1), (0, 0, 0), (1, 2, 1))),
        *(BF16, HALF),
    ),
    "taps that see only padding of an image wider than the stride": (
        *((1, 2, 9, 5), (2, 2, 3, 2), ((1, 3), (0, 2), (1, 1))),
        *(F32, None),
    ),
    "padded by more than the kernel": ((1, 2, 9, 20), (2, 2, 3, 3), ((1, 1), (4, 2), (1, 1)), BF16, HALF),
    "rows that see only padding": ((1, 2, 2, 9), (2, 2, 2, 3), ((3, 1), (2, 0), (1, 1)), F32, None),
    "a padded volume smaller than the kernel": (
        *((1, 2, 2, 9, 9), (2, 2, 3, 3, 3), ((1, 1, 1), (1, 0, 0), (1, 1, 1))),
        *(F32, BEYOND),
    ),
    "a padded volume as large as the kernel": (
        *((1, 2, 3, 9, 9), (2, 2, 3, 3, 3), ((1, 1, 1), (1, 0, 0), (1, 1, 1))),
        *(F32, None),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_not_to_be_trusted_up_to_the_limit_and_no_further(case: str) -> None:
    image, kernel, geometry, dtype, fault = CALLS[case]
    x, weight, told = torch.ones(image, dtype=dtype), torch.ones(kernel, dtype=dtype), Geometry(*geometry)
    assert known_fault(x, weight, told) == fault
    elsewhere = x.new_ones(()).expand(1, image[1], *(99,) * len(image[2:]))
    assert known_fault(elsewhere, weight, told, image[2:]) == fault
    assert known_fault(x.to("meta"), weight.to("meta"), told) is None
    assert known_fault(x.double(), weight.double(), told) is None
    exact = convolve(x.double(), weight.double(), None, told)
    assert torch.equal(convolve(x, weight, None, told).double(), exact)


def test_what_is_computed_in_single_precision_is_rounded_once() -> None:
    x, weight = torch.randn(1, 2, 9, 20).bfloat16(), torch.randn(2, 2, 3, 8).bfloat16()
    bias, geometry = torch.randn(2).bfloat16(), Geometry.of(2, dilation=(1, 2))
    single = torch.nn.functional.conv2d(x.float(), weight.float(), bias.float(), dilation=(1, 2))
    assert torch.equal(convolve(x, weight, bias, geometry), single.bfloat16())


def test_what_is_to_be_trusted_is_torchs_own_call_of_the_same_image(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def noted(*call: Any) -> torch.Tensor:
        asked.append(call)
        return torch.zeros(())

    monkeypatch.setattr(convolution, "_CONVOLUTIONS", (None, noted, None))
    x, weight, geometry = torch.ones(1, 2, 9, 20), torch.ones(2, 1, 3, 3), Geometry((2, 1), (1, 1), (1, 2), 2)
    convolve(x, weight, None, geometry)
    ((image, kernel, *told),) = asked
    assert image is x
    assert kernel is weight
    assert told == [None, *geometry]


@pytest.mark.parametrize("lying", ["contiguous", "channels last", "strided"])
@pytest.mark.parametrize("axes", [2, 3])
def test_a_result_lies_in_memory_as_torchs_own(lying: str, axes: int) -> None:
    x = torch.randn(2, 3, *(6, 5, 4)[:axes])
    if lying == "channels last":
        x = x.contiguous(memory_format=torch.channels_last if axes == 2 else torch.channels_last_3d)
    elif lying == "strided":
        x = torch.stack([x, x], dim=-1)[..., 0]
    own = torch.nn.functional.conv2d if axes == 2 else torch.nn.functional.conv3d
    expected = own(x, torch.ones(5, 3, *(2,) * axes))
    assert laid_out_like(x, torch.zeros(expected.shape)).stride() == expected.stride()
    assert is_channels_last(x) == (lying == "channels last")


def test_a_geometry_has_no_stride_padding_or_dilation_unless_it_is_told() -> None:
    assert Geometry.of(3) == ((1, 1, 1), (0, 0, 0), (1, 1, 1), 1)
    assert Geometry.of(2, (2, 3), (4, 5), (6, 7), 8) == ((2, 3), (4, 5), (6, 7), 8)


def test_a_kernel_spans_its_taps_and_what_is_between_them() -> None:
    assert spans(torch.ones(1, 1, 1, 2, 5), Geometry((1, 1, 1), (0, 0, 0), (9, 3, 2))) == (1, 4, 9)


OVERRUN: dict[str, Any] = {
    "channels": 15,
    "taps": (1, 1),
    "stride": (1, 2),
    "groups": 1,
    "dtype": torch.float32,
    "trained": "kernel",
    "device": "cpu",
}
LEFT_TO_TORCH: list[dict[str, Any]] = [
    {"channels": 16},
    {"channels": 17},
    {"channels": 1},
    {"taps": (1, 2)},
    {"taps": (2, 1)},
    {"taps": (2, 2)},
    {"taps": (1, 1, 1), "stride": (1, 1, 2)},
    {"taps": (1,), "stride": (2,)},
    {"stride": (1, 1)},
    {"groups": 2},
    {"dtype": torch.float64},
    {"trained": "image"},
    {"device": "meta"},
]


def overrun(*, has_bias: bool = True, **changes: Any) -> bool:
    """Whether torch may overrun its memory in the call of OVERRUN with some of it changed."""
    channels, taps, stride, groups, dtype, trained, device = {**OVERRUN, **changes}.values()
    leaves = {
        "image": torch.ones(1, channels * groups, *(8 for _ in taps), dtype=dtype, device=device),
        "kernel": torch.ones(4, channels, *taps, dtype=dtype, device=device),
        "bias": torch.ones(4, dtype=dtype, device=device),
    }
    leaves[trained].requires_grad_()
    bias = leaves["bias"] if has_bias else None
    return is_overrun(leaves["image"], leaves["kernel"], bias, Geometry.of(len(taps), stride, groups=groups))


@pytest.mark.parametrize("changes", [{}, {"has_bias": False}, {"trained": "bias"}, {"channels": 2}, {"stride": (2, 1)}])
def test_torch_may_overrun_the_gradient_of_a_kernel_of_one_tap(changes: dict[str, Any]) -> None:
    assert overrun(**changes)
    with torch.no_grad():
        assert not overrun(**changes)


@pytest.mark.parametrize("changes", [*LEFT_TO_TORCH, {"trained": "bias", "has_bias": False}])
def test_a_call_that_does_not_overrun_is_left_to_torch(changes: dict[str, Any]) -> None:
    assert not overrun(**changes)


def test_a_call_that_may_overrun_is_made_with_as_many_channels_as_fill_a_register(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[tuple[int, ...]]] = []

    def noted(x: torch.Tensor, weight: torch.Tensor, *told: object) -> torch.Tensor:
        asked.append([x.shape, weight.shape])
        return x

    monkeypatch.setattr(convolution, "_CONVOLUTIONS", (None, noted, None))
    for channels in (2, 5, 15):
        weight = torch.ones(4, channels, 1, 1, requires_grad=True)
        convolve(torch.ones(2, channels, 8, 9), weight, None, Geometry.of(2, (2, 2)))
    assert asked == [[(2, 16, 8, 9), (4, 16, 1, 1)]] * 3


@pytest.mark.parametrize("lying", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("stride", "padding"), [((2, 2), (0, 0)), ((1, 2), (1, 0)), ((3, 1), (2, 1))])
def test_a_kernel_of_one_tap_and_its_gradients_are_right(
    lying: torch.memory_format, stride: tuple[int, int], padding: tuple[int, int]
) -> None:
    geometry = Geometry(stride, padding, (1, 1))
    x = torch.randint(-3, 4, (2, 5, 8, 10)).float().contiguous(memory_format=lying)
    weight, bias = torch.randint(-3, 4, (4, 5, 1, 1)).float(), torch.arange(4.0)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    observed = convolve(x, weight, bias, geometry)
    exact = torch.nn.functional.conv2d(x.double(), weight.double(), bias.double(), *geometry)
    assert torch.equal(observed.double(), exact)
    own = torch.nn.functional.conv2d(x, weight, bias, *geometry)
    assert torch.equal(observed, own)
    assert observed.stride() == own.stride()
    upstream = torch.randint(-3, 4, exact.shape).double()
    found = torch.autograd.grad(observed, leaves, upstream.float())
    for gradient, expected in zip(found, torch.autograd.grad(exact, leaves, upstream), strict=True):
        assert torch.equal(gradient, expected)
