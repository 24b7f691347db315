"""The certificate holds at the ends of floating point: subnormal and huge numbers, ranges far apart, overflow.

Outputs are compared with exact arithmetic in fractions, with subnormal numbers kept and, where the processor can, taken
for zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify, certify_data
from conv2attn.convert.bounds.underflow import is_subnormal, magnitudes

LARGEST = torch.finfo(torch.float32).max
ONE_HOT = ("literal", "sdpa", "separable", "factored")
SOFT = ("literal", "separable", "factored")


@contextmanager
def subnormals(*, flushed: bool) -> Iterator[None]:
    """Takes subnormal numbers for zero, or keeps them."""
    torch.set_flush_denormal(flushed)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def convolution(weight: Tensor, *, stride: int = 1, padding: tuple[int, int] = (0, 0)) -> nn.Conv2d:
    """A convolution with a square kernel, without bias."""
    out_channels, in_channels, side, _ = weight.shape
    conv = nn.Conv2d(in_channels, out_channels, side, stride, padding, bias=False, dtype=weight.dtype)
    with torch.no_grad():
        conv.weight.copy_(weight)
    return conv


def exactly(values: Tensor) -> list[Fraction]:
    """The values as fractions, whatever the processor does with subnormal numbers."""
    with subnormals(flushed=False):
        return [Fraction(value) for value in values.detach().double().flatten().tolist()]


def exact_convolution(conv: nn.Conv2d, x: Tensor) -> list[Fraction]:
    """The convolution of one image, channel by channel and row by row."""
    spec = attention_from_conv(conv).spec
    columns = torch.nn.functional.unfold(spec.pad(x.double()), conv.kernel_size, spec.dilation, stride=spec.stride)[0]
    pixels, kernels = exactly(columns.T), exactly(conv.weight)
    size = len(columns)
    return [
        sum((w * v for w, v in zip(kernel, window, strict=True)), Fraction())
        for kernel in (kernels[start : start + size] for start in range(0, len(kernels), size))
        for window in (pixels[start : start + size] for start in range(0, len(pixels), size))
    ]


def errors(conv: nn.Conv2d, layer: SelfAttention2d, x: Tensor, *, flushed: bool) -> tuple[Fraction, Fraction]:
    """The largest errors of attention, in the exact regime, and of the convolution."""
    with torch.no_grad(), subnormals(flushed=flushed):
        outputs = layer(x), conv(x)
    exact = exact_convolution(conv, x)
    first, second = (max(abs(a - b) for a, b in zip(exactly(y), exact, strict=True)) for y in outputs)
    return first, second


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("engine", ONE_HOT)
@pytest.mark.parametrize(
    ("dtype", "weight", "pixel"),
    [
        (torch.bfloat16, 1.1e-38, 3e38),
        (torch.float32, 5e-39, 1e30),
        (torch.float64, 1e-320, 1e300),
        (torch.float16, 6e-8, 6e4),
    ],
)
def test_subnormal_weights_of_huge_inputs_stay_within_the_bound(
    dtype: torch.dtype, weight: float, pixel: float, engine: str, flushed: bool
) -> None:
    conv = convolution(torch.full((2, 3, 2, 2), weight, dtype=torch.float64).to(dtype), padding=(1, 1))
    layer = attention_from_conv(conv, engine=engine)
    x = (torch.rand(1, 3, 4, 5, dtype=torch.float64) * pixel).to(dtype)
    attention, convolved = errors(conv, layer, x, flushed=flushed)
    for certificate in (certify_data(layer, [x], engine=engine), certify(layer, input_range=(0, pixel))):
        assert attention <= certificate.rounding_attention
        assert convolved <= certificate.rounding_convolution


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("engine", SOFT)
def test_channels_whose_ranges_are_far_apart_stay_within_the_bound(engine: str, kernel: int) -> None:
    weight = torch.zeros(1, 2, kernel, kernel)
    weight[:, 1] = 1
    conv = convolution(weight, padding=(kernel // 2, kernel // 2))
    layer = attention_from_conv(conv, alpha=1.0, engine=engine)
    x = torch.randn(1, 2, 5, 6) * torch.tensor([1e30, 1e-18]).view(1, 2, 1, 1)
    with torch.no_grad():
        difference = float((layer(x) - conv(x)).abs().max())
    ends = x.amax((0, 2, 3)).clamp(min=0), x.amin((0, 2, 3)).clamp(max=0)
    assert 0 < difference <= certify_data(layer, [x], engine=engine).bound < 1e-15
    assert difference <= certify(layer, input_range=(ends[1], ends[0]), engine=engine).bound < 1e-15


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(("kernel", "alpha"), [(1, 3.0), (2, 0.2)])
def test_the_tail_of_subnormal_weights_is_not_rounded_to_nothing(kernel: int, alpha: float, flushed: bool) -> None:
    weight = 1e-320
    layer = attention_from_conv(
        convolution(torch.full((1, 1, kernel, kernel), weight, dtype=torch.float64)), alpha=alpha
    )
    normal = attention_from_conv(convolution(torch.ones(1, 1, kernel, kernel, dtype=torch.float64)), alpha=alpha)
    expected = certify(normal, input_range=(0, 1)).tail
    with subnormals(flushed=flushed):
        found = certify(layer, input_range=(0, 1e300)).tail
    assert Fraction(found) >= Fraction(expected) * Fraction(weight) * Fraction(1e300) * Fraction(99, 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_certificate_made_where_subnormal_numbers_are_taken_for_zero_is_the_same(dtype: torch.dtype) -> None:
    smallest = torch.finfo(torch.promote_types(dtype, torch.float32)).smallest_normal
    weight = torch.tensor([smallest / 2, -smallest / 4, 1.0, -1.0], dtype=dtype).view(1, 1, 2, 2)
    x = torch.tensor([smallest / 2, 1.0, 1e30, -smallest / 2] * 4, dtype=dtype).view(1, 1, 4, 4)
    for alpha in (None, 1.0):
        layer = attention_from_conv(convolution(weight), alpha=alpha)
        kept = certify(layer, input_range=(-1e30, 1e30)), certify_data(layer, [x])
        with subnormals(flushed=True):
            lost = certify(layer, input_range=(-1e30, 1e30)), certify_data(layer, [x])
        for a, b in zip(kept, lost, strict=True):
            assert a.bound == pytest.approx(b.bound, rel=1e-6)


@pytest.mark.parametrize("engine", [*SOFT, "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_where_smoothing_could_overflow_the_bound_is_infinite(dtype: torch.dtype, engine: str) -> None:
    """Rounding makes the average of the largest numbers infinite, though every product with a weight is small."""
    limits = torch.finfo(dtype)
    layer = attention_from_conv(convolution(torch.full((1, 1, 3, 3), 1e-3, dtype=dtype)), alpha=0.3, engine=engine)
    x = torch.full((1, 1, 8, 9), limits.max, dtype=dtype)
    assert certify_data(layer, [x], engine=engine).bound == math.inf
    assert certify(layer, input_range=(0, limits.max / 2), engine=engine).bound < math.inf


@pytest.mark.parametrize("engine", ["literal", "separable", "sdpa", "auto"])
def test_a_pixel_that_no_tap_reads_can_overflow(engine: str) -> None:
    conv = convolution(torch.full((1, 1, 1, 1), 1e3), stride=2)
    layer = attention_from_conv(conv, engine=engine)
    x = torch.ones(1, 1, 3, 3)
    x[..., 1, 1] = LARGEST
    certificate = certify_data(layer, [x], engine=engine)
    with torch.no_grad():
        assert certificate.bound == math.inf or bool((layer(x) - conv(x)).abs().max() <= certificate.bound)
    assert certificate.rounding_convolution < 1e-2


def test_what_an_input_varies_by_is_at_least_the_smallest_normal_number() -> None:
    layer = attention_from_conv(convolution(torch.ones(1, 1, 3, 3, dtype=torch.float64)), alpha=1.0)
    tiny, small = (certify(layer, input_range=(0, largest)).tail for largest in (5e-324, 2.0**-1022))
    assert tiny == small > 0


def test_a_channel_that_no_weight_reads_can_overflow_where_it_is_smoothed() -> None:
    layer = attention_from_conv(convolution(torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)), alpha=1.0)
    assert certify(layer, input_range=([0, 0], [1, LARGEST / 2])).bound < 10
    assert certify(layer, input_range=([0, 0], [1, LARGEST])).bound == math.inf


def test_where_scores_or_the_certificate_s_own_sums_could_overflow_the_bound_is_infinite_and_else_finite() -> None:
    def bound(dtype: torch.dtype, alpha: float | None, largest: float = 1.0) -> float:
        layer = attention_from_conv(convolution(torch.ones(1, 1, 3, 3, dtype=dtype)), alpha=alpha)
        return certify(layer, input_range=(-largest, largest)).bound

    assert max(bound(torch.float32, 2.0**60), bound(torch.float64, 2.0**900)) < 1e-4
    assert bound(torch.float64, 1e303) == bound(torch.float64, 1e308) == math.inf
    for dtype in (torch.float64, torch.float32):
        assert bound(dtype, None, 1.7e308) == bound(dtype, 1.0, 1.7e308) == math.inf


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_subnormal_numbers_are_known_by_their_bits(dtype: torch.dtype, flushed: bool) -> None:
    computed = torch.finfo(torch.promote_types(dtype, torch.float32))
    small = [0.0, -0.0, computed.smallest_normal, -computed.smallest_normal / 2, 1.0, math.inf]
    values = torch.tensor(small, dtype=dtype)
    with subnormals(flushed=flushed):
        found, largest = is_subnormal(values), magnitudes(values)
    held = dtype != torch.float16
    assert found.tolist() == [False, False, False, held, False, False]
    smallest = computed.smallest_normal if held else 0.0
    assert largest.tolist() == [0, 0, smallest, smallest, 1, math.inf]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_smallest_and_the_largest_of_subnormal_numbers_are_known_and_no_normal_one(dtype: torch.dtype) -> None:
    computed = torch.promote_types(dtype, torch.float32)
    normal = torch.finfo(computed).smallest_normal
    smallest = normal * torch.finfo(dtype).eps
    values = torch.tensor([smallest, normal - smallest, normal / 2 + smallest, normal + smallest], dtype=torch.float64)
    assert is_subnormal(values.to(dtype)).tolist() == [True, True, True, False]
    assert magnitudes(-values.to(dtype)).tolist() == [normal, normal, normal, normal + smallest]


EXPONENTS = st.integers(-46, 37)


@given(
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from(ONE_HOT),
    st.lists(EXPONENTS, min_size=4, max_size=4),
    st.lists(EXPONENTS, min_size=3, max_size=3),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_numbers_of_any_size_stay_within_the_bound_in_exact_arithmetic(
    dtype: torch.dtype, engine: str, weights: list[int], pixels: list[int], flushed: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    scale = torch.tensor([[10.0**e for e in weights]], dtype=torch.float64).T.reshape(1, 1, 2, 2)
    sizes = torch.tensor([10.0**e for e in pixels], dtype=torch.float64).view(1, 3, 1, 1)
    conv = convolution((torch.randn(2, 3, 2, 2, dtype=torch.float64) * scale).to(dtype), padding=(1, 0))
    x = (torch.randn(1, 3, 3, 4, dtype=torch.float64) * sizes).to(dtype)
    layer = attention_from_conv(conv, engine=engine)
    certificate = certify_data(layer, [x], engine=engine)
    with torch.no_grad(), subnormals(flushed=flushed):
        outputs = layer(x), conv(x)
    if math.isfinite(certificate.bound):
        exact = exact_convolution(conv, x)
        for y, bound in zip(outputs, (certificate.rounding_attention, certificate.rounding_convolution), strict=True):
            assert max(abs(a - b) for a, b in zip(exactly(y), exact, strict=True)) <= Fraction(bound)
