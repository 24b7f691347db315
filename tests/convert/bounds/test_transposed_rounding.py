"""PyTorch may round each tap of a transposed convolution to half precision, and the bounds count that."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.bounds.rounding import convolution_error, gamma, unit_roundoff
from conv2attn.convert.spec import CONVOLUTIONS, Convolution

HALVES = (torch.bfloat16, torch.float16)
TAPS = {1: 30, 2: 5, 3: 3}


def positive(axes: int, dtype: torch.dtype, *, transposed: bool = True) -> tuple[Convolution, Tensor]:
    """A convolution of numbers that no sum cancels, and an input."""
    conv = CONVOLUTIONS[axes, transposed](2, 3, TAPS[axes], dtype=dtype)
    for parameter in conv.parameters():
        parameter.data.uniform_(0.5, 1)
    return conv, torch.rand(2, 2, *(TAPS[axes] + 4,) * axes).to(dtype)


@contextmanager
def onednn(*, enabled: bool) -> Iterator[None]:
    """With oneDNN, or with PyTorch's own loops; ``torch.backends.mkldnn.flags`` warns of something else."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(enabled)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def in_double(conv: Convolution, x: Tensor) -> Tensor:
    output: Tensor = copy.deepcopy(conv).double()(x.double())
    return output


@pytest.mark.parametrize(
    ("dtype", "axes", "by_onednn"),
    [(torch.bfloat16, 1, False), (torch.float16, 2, False), (torch.bfloat16, 3, True), (torch.float16, 1, True)],
)
@torch.no_grad()
def test_a_transposed_convolution_in_half_precision_stays_within_its_rounding(
    dtype: torch.dtype, axes: int, by_onednn: bool
) -> None:
    conv, x = positive(axes, dtype)
    certificate = certify(attention_from_conv(conv), input_range=(0, 1))
    with onednn(enabled=by_onednn):
        error = (conv(x).double() - in_double(conv, x)).abs().amax((0, *range(2, x.ndim)))
    assert (error <= torch.tensor(certificate.rounding_convolution)).all()


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_only_transposed_ones_in_half_precision_round_by_taps(dtype: torch.dtype) -> None:
    for transposed in (True, False):
        layer = attention_from_conv(CONVOLUTIONS[2, transposed](4, 2, 3, dtype=dtype))
        unit = unit_roundoff(layer.regime.dtype)
        once = gamma(4 * 9 + 1, unit)
        by_taps = (1 + once) * (1 + gamma(9 + 1, unit_roundoff(dtype))) - 1
        expected = by_taps if transposed and dtype in HALVES else once
        assert convolution_error(layer.values()) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("axes", TAPS)
@torch.no_grad()
def test_one_rounding_of_the_output_would_not_bound_it(axes: int) -> None:
    for transposed in (True, False):
        conv, x = positive(axes, torch.bfloat16, transposed=transposed)
        exact = in_double(conv, x)
        with onednn(enabled=False):
            relative = float(((conv(x).double() - exact) / exact).abs().max())
        once = unit_roundoff(torch.bfloat16) * (1 + 2.0**-8)
        assert (relative > once) == transposed
