"""Content terms, some queries at a time: what the literal engine computes, forward and backward, in linear memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from conv2attn.convert import SelfAttention, attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import separable as content
from tests.bounds import output_bound
from tests.integers import integers

CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "sequence": (nn.Conv1d(2, 3, 3, stride=2, padding=1), (7,)),
    "image": (nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=(1, 0), padding_mode="circular"), (4, 5)),
    "groups": (nn.Conv2d(4, 6, 2, groups=2, dilation=2, bias=False), (5, 4)),
    "volume": (nn.Conv3d(1, 2, (2, 1, 2)), (3, 2, 4)),
    "transposed": (nn.ConvTranspose2d(4, 4, (2, 3), stride=2, groups=2), (2, 3)),
}
KEY_DIM = 3


def layer_and_input(case: str) -> tuple[SelfAttention, Tensor]:
    """A layer with content terms of small integers, all of whose positions and parameters are trained, and an input."""
    conv, size = CASES[case]
    layer = attention_from_conv(conv.double(), alpha=0.5)  # type: ignore[call-overload]
    assert isinstance(layer, SelfAttention)
    terms = layer.add_content(KEY_DIM)
    layer.train_positions()
    with torch.no_grad():
        for parameter in (layer.weight, *terms.parameters()):
            parameter.copy_(integers(*parameter.shape, largest=1))
        layer.weight.abs_().add_(1)
    for parameter in layer.parameters():
        parameter.requires_grad_()
    return layer, integers(2, layer.spec.in_channels, *size, largest=1, dtype=torch.float64).requires_grad_()


def gradient_bound(layer: SelfAttention, x: Tensor, cotangent: Tensor) -> float:
    """How far apart two computations of a derivative can be.

    A derivative of an output is a sum over keys of p_k (s'_k - mean s') w x_k, or of p_k w, p_k x_k. So it errs by at
    most twice what an output errs by, times the largest derivative s' of a score: by a pixel or a parameter at most
    key_dim * channels times the square of (1 + max |x|), times the largest entry of the encoding.
    """
    grid = layer.spec.padded_size(Size(*x.shape[2:]))
    reach = math.hypot(*grid) + float(layer.centers.detach().abs().max())
    steepest = KEY_DIM * x.shape[1] * (1 + float(x.detach().abs().max())) ** 2 * (1 + reach**2)
    return 4 * steepest * float(cotangent.abs().sum()) * output_bound(layer, x.detach())


@pytest.mark.parametrize(
    ("case", "formed"),
    [
        ("sequence", 0),
        ("image", 2**20),
        ("groups", 2**20),
        ("groups", 0),
        ("volume", 2**20),
        ("transposed", 0),
    ],
)
def test_values_and_derivatives_are_the_literal_engines(
    case: str, formed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_SCORES", formed)  # all scores at once, or torch's fused kernel
    layer, x = layer_and_input(case)
    found: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}
    for engine in ("literal", "separable"):
        layer.engine = engine
        output = layer(x)
        cotangent = torch.ones_like(output)
        found[engine] = output, torch.autograd.grad(output, [x, *layer.parameters()], cotangent)
    (expected, wanted), (observed, gradients) = found["literal"], found["separable"]
    assert (observed - expected).abs().max() <= output_bound(layer, x.detach())
    for gradient, right in zip(gradients, wanted, strict=True):
        assert (gradient - right).abs().max() <= gradient_bound(layer, x, cotangent)


def test_derivatives_can_be_differentiated() -> None:
    layer, x = layer_and_input("image")
    assert layer.content is not None
    second = []
    for engine in ("literal", "separable"):
        layer.engine = engine
        (first,) = torch.autograd.grad(layer(x).sum(), layer.content.query_weight, create_graph=True)
        second.append(torch.autograd.grad(first.sum(), x)[0])
    scale = float(second[0].abs().max())
    assert scale > 0
    assert (second[1] - second[0]).abs().max() <= gradient_bound(layer, x, torch.ones(1)) * (1 + scale)


@pytest.mark.parametrize("channels", [2, 9])
def test_torch_never_forms_all_pairs_where_they_are_many(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_SCORES", 0)
    layer = attention_from_conv(nn.Conv2d(channels, 3, 3, padding=1))
    layer.add_content(KEY_DIM)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # fails where torch would take another kernel
        assert layer(torch.randn(2, channels, 5, 6)).isfinite().all()


@pytest.mark.parametrize("case", CASES)
def test_a_batch_of_no_images_has_no_outputs_and_gradients_of_zero(case: str) -> None:
    layer, x = layer_and_input(case)
    nothing = x[:0].detach().requires_grad_()
    layer(nothing).sum().backward()
    assert layer(nothing).shape == layer(x)[:0].shape
    assert nothing.grad is not None
    assert not any(parameter.grad.any() for parameter in layer.parameters() if parameter.grad is not None)
