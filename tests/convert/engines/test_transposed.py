"""A transposed convolution is right along any axes, also where torch's own call is not to be trusted."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conv2attn.convert.engines import transposed
from conv2attn.convert.engines.convolution import Geometry, is_beyond, is_narrow, needs_precision
from conv2attn.convert.engines.transposed import convolve_transposed, result_size

TORCHS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
GUARDS = (needs_precision, is_beyond, is_narrow)


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor | None, Geometry, tuple[int, ...]]:
    """A small call on integers, whose sums no precision rounds."""
    axes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))

    def each(smallest: int, largest: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(smallest, largest)) for _ in range(axes))

    kernel, stride, dilation, size = each(1, 3), each(1, 4), each(1, 2), each(1, 4)
    spans = [d * (taps - 1) + 1 for d, taps in zip(dilation, kernel, strict=True)]
    added = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    room = (((n - 1) * s + span + a - 1) // 2 for n, s, span, a in zip(size, stride, spans, added, strict=True))
    padding = tuple(draw(st.integers(0, most)) for most in room)
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def integers(*shape: int) -> Tensor:
        return torch.randint(-1, 2, shape, generator=generator).to(dtype)

    x, weight = integers(2, 2 * groups, *size), integers(2 * groups, 3, *kernel)
    bias = draw(st.sampled_from([None, integers(3 * groups)]))
    return x, weight, bias, Geometry(stride, padding, dilation, groups), added


def exact(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, added: tuple[int, ...]) -> Tensor:
    """The same in double precision."""
    stride, padding, dilation, groups = geometry
    bias = None if bias is None else bias.double()
    return TORCHS[x.ndim - 2](x.double(), weight.double(), bias, stride, padding, added, groups, dilation)


@settings(max_examples=200)
@given(calls())
def test_a_transposed_convolution_is_that_of_double_precision(
    call: tuple[Tensor, Tensor, Tensor | None, Geometry, tuple[int, ...]],
) -> None:
    x, weight, _, geometry, added = call
    observed, expected = convolve_transposed(*call), exact(*call)
    assert observed.dtype == x.dtype
    assert torch.equal(observed.double(), expected)
    assert result_size(x, weight, geometry, added) == tuple(expected.shape[2:])


ASKED = {
    # What is not to be trusted: one strided column; taps that see only padding; bfloat16 with a far stride.
    "narrow": (is_narrow, torch.float32, (1, 2, 5, 1), (2, 1, 3, 2), Geometry((1, 3), (0, 1), (1, 1), 2), (0, 1)),
    "beyond": (is_beyond, torch.float32, (1, 2, 3, 2), (2, 2, 2, 2), Geometry((1, 4), (0, 2), (1, 1)), (0, 0)),
    "beyond in a volume": (
        is_beyond,
        torch.float32,
        (1, 2, 2, 2, 2),
        (2, 2, 3, 3, 3),
        Geometry((1, 1, 1), (1, 1, 1), (1, 1, 1)),
        (0, 0, 0),
    ),
    "precise": (needs_precision, torch.bfloat16, (1, 2, 5, 5), (2, 2, 2, 5), Geometry((1, 4), (0, 0), (1, 1)), (0, 0)),
}


@pytest.mark.parametrize("case", ASKED)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_call_that_is_not_to_be_trusted_is_made_another_way(
    case: str, has_bias: bool, memory_format: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, dtype, image, kernel, geometry, added = ASKED[case]
    x = torch.arange(math.prod(image)).remainder(3).sub(1).view(image).to(dtype)
    if x.ndim == 4:
        x = torch.empty_like(x, memory_format=memory_format).copy_(x)
    weight = torch.arange(math.prod(kernel)).remainder(5).sub(2).view(kernel).to(dtype)
    bias = torch.arange(kernel[1] * geometry.groups).to(dtype) if has_bias else None
    made, honest = [], transposed._call

    def noted(*call: object) -> Tensor:
        made.append(call)
        return honest(*call)  # type: ignore[arg-type]

    monkeypatch.setattr(transposed, "_call", noted)
    size = result_size(x, weight, geometry, added)
    assert guard(x, weight, geometry, size)
    observed, expected = convolve_transposed(x, weight, bias, geometry, added), exact(x, weight, bias, geometry, added)
    assert torch.equal(observed.double(), expected)
    assert observed.dtype == dtype
    strides = zip(observed.shape, observed.stride(), expected.stride(), strict=True)
    assert all(one == other for length, one, other in strides if length > 1)
    (call,) = made
    asked, told = call[0], call[3]
    assert isinstance(asked, Tensor)
    assert isinstance(told, Geometry)
    if guard is needs_precision:
        assert asked.dtype == torch.float32
    elif guard is is_beyond:
        assert told == geometry._replace(padding=(0,) * len(geometry.padding))
    else:
        assert asked.shape[-1] == x.shape[-1] + 1


def test_what_is_to_be_trusted_is_torchs_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, geometry = torch.ones(1, 2, 8, 8), torch.ones(2, 3, 3, 3), Geometry.of(2, (2, 2), (1, 1))
    assert not any(guard(x, weight, geometry, (15, 15)) for guard in GUARDS)
    expected = F.conv_transpose2d(x, weight, None, 2, 1)
    assert torch.equal(convolve_transposed(x, weight, None, geometry, (0, 0)), expected)
