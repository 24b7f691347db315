"""Smoothing by a constant kernel and a border's scale is the softmax around every target, but for far keys."""

from __future__ import annotations

import copy

import mpmath
import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.bounds.rounding import factored_error, left_out
from conv2attn.convert.engines import factored as stencil
from conv2attn.convert.engines.factored import Axis

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_taps_that_are_kept_are_the_fewest_whose_rest_weighs_no_more_than_may_be_left_out(
    dtype: torch.dtype,
) -> None:
    for alpha in (0.02, 0.3, 1.0, 2.0, 8.0, 16.6, 17.4, 60.0):
        reach, far = stencil.radius(alpha, dtype), mpmath.mpf(0)
        with mpmath.workdps(50):
            beyond = [mpmath.exp(-mpmath.mpf(alpha) * d * d) for d in range(reach, reach + 60)]
            far = mpmath.fsum(beyond[1:])
            assert 2 * far <= left_out(dtype), alpha
            assert reach == 0 or far + beyond[0] > 0.49 * left_out(dtype), alpha


@pytest.mark.parametrize(
    ("conv", "size"),
    [
        (nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 1)), (9, 7)),
        (nn.Conv2d(2, 3, (3, 1), stride=(2, 3), padding=(1, 0), padding_mode="circular"), (9, 8)),
        (nn.Conv2d(4, 2, 1, stride=(2, 3), padding=1, groups=2), (12, 5)),
        (nn.Conv2d(2, 4, (4, 3), dilation=2, padding="same", groups=2), (8, 30)),
        (nn.Conv1d(3, 2, 3, stride=2, padding=2), (17,)),
        (nn.Conv3d(2, 3, (2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1)), (4, 5, 3)),
    ],
)
def test_soft_layers_in_single_precision_are_their_formula_within_the_certified_rounding(
    conv: nn.Conv1d | nn.Conv2d | nn.Conv3d, size: tuple[int, ...]
) -> None:
    x, precise = torch.randn(2, conv.in_channels, *size), copy.deepcopy(conv).double()
    for number, alpha in enumerate((0.2, 0.5, 1.0, 2.0, 8.0, 40.0)):
        layout = torch.channels_last if x.ndim == 4 and number % 2 else torch.contiguous_format
        layer, lying = attention_from_conv(conv, alpha=alpha), x.contiguous(memory_format=layout)
        observed = layer(lying).detach()
        assert stencil.is_fast(alpha, torch.float32, CPU)
        exact = attention_from_conv(precise, alpha=alpha, engine="literal")(x.double()).detach()
        scale = layer.kernel.detach().abs().flatten(1).sum(1).max() * x.abs().max() + 1
        assert (observed - exact).abs().max() <= 2 * factored_error(layer.values()) * scale, alpha
        if conv.padding_mode == "zeros":
            own = conv(lying).is_contiguous(memory_format=layout)
            assert observed.is_contiguous(memory_format=layout) == own, alpha


def _differs() -> bool:
    layer, x = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=1.0), torch.randn(1, 2, 6, 7)
    right = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=1.0, engine="separable")
    right.load_state_dict(layer.state_dict())
    bound = 2 * certify(layer, input_range=(float(x.min()), float(x.max()))).rounding_attention
    return bool((layer(x) - right(x)).abs().max() > bound)


@pytest.mark.fault
def test_a_border_without_its_scale_and_a_kernel_that_is_too_short_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _differs()

    def unscaled(axes: tuple[Axis, ...], *_: object) -> Tensor:
        return torch.ones([axis.queries for axis in axes])

    with monkeypatch.context() as planted:
        planted.setattr(stencil, "_kept_scale", unscaled)
        assert _differs()
    with monkeypatch.context() as planted:
        planted.setattr(stencil, "radius", lambda alpha, dtype: 1)
        assert _differs()
