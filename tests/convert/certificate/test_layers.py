"""An attention layer adds its own certificate to what its convolution makes of bounds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.certificate.propagation.interval import Interval, UnboundedError, affine
from conv2attn.convert.certificate.propagation.layers import bound_attention
from tests.convert.certificate.following import X, interval


@pytest.mark.parametrize("padding", [0, 1])
def test_ends_are_those_of_the_convolution_and_the_larger_rounding_and_errors_add_up(padding: int) -> None:
    conv = nn.Conv2d(4, 6, 2, groups=2, padding=padding)
    layer = attention_from_conv(conv, alpha=3.0)
    output, own, inherited = bound_attention(layer, X)
    own_certificate = certify(layer, input_range=(X.low, X.high))
    assert own == own_certificate
    inputs = X.with_zero() if padding else X
    exact, _ = affine(inputs, conv.weight.detach().flatten(2), conv.bias, groups=2)
    rounding = max(own.rounding_attention, own.rounding_convolution)
    assert rounding > 0
    assert output.low.tolist() == (exact.low - rounding).tolist()
    assert output.high.tolist() == (exact.high + rounding).tolist()
    errors = exact.error + torch.tensor(own.per_channel, dtype=torch.float64)
    assert output.error.tolist() == torch.minimum(errors, output.high - output.low).tolist()
    assert inherited == float(exact.error.max())


def test_one_bound_for_all_channels_is_that_of_each() -> None:
    layer = attention_from_conv(nn.Conv2d(4, 3, 1))
    (found, _, _), (each, _, _) = (
        bound_attention(layer, x) for x in (Interval.of(-1, 2, 0.5), Interval.of(-1, 2, 0.5).expanded(4))
    )
    assert found.low.tolist() == each.low.tolist()


def test_a_layer_without_a_certificate_and_an_input_without_bounds_have_none() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 1))
    for low, high in ((-torch.inf, 0.0), (0.0, torch.inf)):
        with pytest.raises(UnboundedError, match="the values of its input are not bounded"):
            bound_attention(layer, interval([0, low], [0, high], [0, 0]))
    with pytest.raises(UnboundedError, match="no finite certificate is known for values this large"):
        bound_attention(layer, Interval.of(0, 1e308))
    with torch.no_grad():
        layer.weight.view(-1)[0] = torch.nan
    with pytest.raises(UnboundedError, match="nothing is certified for a layer with NaN or infinite weights"):
        bound_attention(layer, Interval.of(0, 1))
