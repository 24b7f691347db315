"""A frozen convolution is within its certificate of the attention, and could not be smaller."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, convert_model
from conv2attn.convert.errors import ConversionError, NotAConvolutionError
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.spec import Convolution, ConvSpec
from conv2attn.convert.subclasses.padded import PaddedConv2d
from conv2attn.learn import freeze
from conv2attn.learn.freezing import certificate, freeze_layer
from conv2attn.learn.melting import attention_layers, melt
from tests.convert.certificate.trained import CASES, ROUNDING, trained
from tests.learn.small import network
from tests.small_models import assert_same_state


def worst_inputs(conv: Convolution, layer: SelfAttention, low: float, high: float) -> Tensor:
    """Random inputs, those at the ends of the range, and those that push single outputs as far as possible."""
    x = torch.rand(20, 3, 17, 19, dtype=torch.float64) * (high - low) + low
    found = [x, torch.where(x > (low + high) / 2, high, low)]
    rows, columns = conv(x).shape[2:]
    for row, column in ((0, 0), (rows // 2, columns // 2), (-1, columns // 2), (rows - 1, columns - 1)):
        for channel in range(6):
            one = x[:1].clone().requires_grad_(True)
            (layer(one) - conv(one))[0, channel, row, column].backward()
            assert one.grad is not None
            found.append(torch.where(one.grad > 0, high, low))
    return torch.cat(found)


def assert_within_certificate(layer: SelfAttention, tolerance: float, ends: tuple[float, float]) -> None:
    frozen = freeze_layer(layer, tolerance, input_range=ends)
    conv, found = frozen.convolution, frozen.certificate
    x = worst_inputs(conv, layer, *ends)
    with torch.no_grad():
        apart = (layer(x) - conv(x)).abs()  # of one shape
    assert found.kernel_size == tuple(conv.kernel_size)
    assert found.cut_off <= tolerance
    assert float(apart.max()) <= found.border + ROUNDING
    steps = (1, 1) if conv.transposed else conv.stride
    rows, columns = (math.ceil(size / step) for size, step in zip(conv.kernel_size, steps, strict=True))
    inner = apart[..., rows:-rows, columns:-columns]
    assert inner.numel() > 0
    assert float(inner.max()) <= found.cut_off + ROUNDING


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("ends", "tolerance"), [((-1.0, 1.0), 0.3), ((0.0, 3.0), 0.01)])
def test_no_input_is_beyond_the_certificate(case: str, ends: tuple[float, float], tolerance: float) -> None:
    assert_within_certificate(trained(case)[1], tolerance, ends)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tolerance", [0.3, 1e-4])
def test_a_smaller_kernel_violates_the_tolerance(case: str, tolerance: float) -> None:
    _, layer = trained(case)
    conv = freeze_layer(layer, tolerance).convolution
    padding = [int(pad) for pad in conv.padding]
    smaller = 0
    for axis, pad in enumerate(padding):
        less = [each - (number == axis) for number, each in enumerate(padding)]
        if pad > 0 and all(size > 2 for size in conv.kernel_size):
            assert certificate(layer, less, input_range=(-1.0, 1.0)).cut_off > tolerance
            smaller += 1
    assert smaller


def test_the_worst_input_comes_near_the_cut_off() -> None:
    _, layer = trained("padded")
    frozen = freeze_layer(layer, 0.3)
    one = torch.zeros(1, 3, 41, 41, dtype=torch.float64, requires_grad=True)
    outputs = (layer(one) - frozen.convolution(one))[0, :, 20, 20]
    x = torch.cat([torch.sign(torch.autograd.grad(each, one, retain_graph=True)[0]) for each in outputs])
    with torch.no_grad():
        apart = (layer(x) - frozen.convolution(x))[..., 20, 20].abs().max()
    assert frozen.certificate.cut_off / 3 < float(apart) <= frozen.certificate.cut_off + ROUNDING


OTHERS: dict[str, nn.Conv2d | nn.ConvTranspose2d] = {
    "transposed": nn.ConvTranspose2d(3, 6, 3, stride=(2, 3), padding=1, output_padding=(1, 2)),
    "grouped": nn.ConvTranspose2d(3, 6, (3, 2), groups=3, dilation=2, bias=False),
    "cropped": nn.ConvTranspose2d(3, 6, 2, stride=2, padding=2),
    "same": PaddedConv2d(ConvSpec(3, 6, (3, 4), (2, 1), padding="same_upper")),
    "fewer taps than the stride": PaddedConv2d(ConvSpec(3, 6, (1, 2), (2, 3), padding="same_lower", bias=False)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_transposed_layers_and_those_padded_by_the_input_s_size_are_frozen_likewise(case: str) -> None:
    torch.manual_seed(0)
    layer = attention_from_conv(OTHERS[case].double(), alpha=3.0)
    layer.set_positions(alpha=torch.empty_like(layer.alpha).uniform_(0.5, 4.0))
    layer.set_positions(centers=layer.centers + torch.randn_like(layer.centers) / 2)
    assert_within_certificate(layer, 0.3, (-1.0, 1.0))


def test_a_frozen_layer_that_was_not_trained_is_its_convolution() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, (3, 5), stride=(1, 2), padding=(1, 2))
    layer = convert_model(conv).model
    found = freeze(layer, 1e-6)
    assert torch.equal(found.layers[0].convolution.weight, conv.weight)
    assert found.model is found.layers[0].convolution
    assert found.layers[0].certificate.cut_off < 1e-9


def test_a_network_is_frozen_layer_by_layer_and_left_alone() -> None:
    model = melt(network(), alpha=3.0).eval()
    before = copy.deepcopy(model)
    found = freeze(model, 0.01)
    assert not list(attention_layers(found.model))
    assert [layer.names for layer in found.layers] == [("0",), ("3",)]
    assert_same_state(model, before)
    x = torch.rand(2, 1, 12, 13)
    with torch.no_grad():
        assert found.model(x).shape == model(x).shape


def test_what_looks_at_the_image_is_not_frozen() -> None:
    model = melt(network())
    for _, layer in attention_layers(model):
        layer.add_content(2)
    assert freeze(model, 0.1).layers  # content that is off
    with torch.no_grad():
        for name in ("0", "3"):
            model.get_parameter(f"{name}.content.query_weight").fill_(0.5)
    with pytest.raises(NotAConvolutionError, match=r"0: it looks at the image .*; 3: it looks at the image"):
        freeze(model, 0.1)
    with pytest.raises(NotAConvolutionError, match="no attention layer"):
        freeze(network(), 0.1)
    with pytest.raises(ConversionError, match="tolerance must be positive"):
        freeze(melt(network()), 0.0)
    with pytest.raises(ConversionError, match=r"got the class Linear: pass Linear\(\)"):
        freeze(nn.Linear, 0.1)  # type: ignore[arg-type]


def test_a_tolerance_that_no_kernel_meets_is_refused() -> None:
    layer = next(attention_layers(melt(network(), alpha=0.01)))[1]
    with pytest.raises(ConversionError, match="no kernel of up to"):
        freeze_layer(layer, 1e-6)
