"""Under autocast, gradients and content terms are the layer's; ``check_autocast`` of the campaign tests outputs."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff
from conv2attn.convert.engines import AUTO, ENGINES

CASES = [
    (engine, alpha, dtype)
    for engine in (AUTO, *ENGINES)
    for alpha, dtype in ((None, torch.bfloat16), (None, torch.float16), (2.0, torch.float16), (0.5, torch.bfloat16))
    if engine != "sdpa" or alpha is None  # it refuses soft attention
]


def make(engine: str, alpha: float | None) -> tuple[nn.Conv2d, SelfAttention2d, Tensor]:
    """A convolution, its attention, and an input."""
    conv = nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 2), groups=2)
    layer = attention_from_conv(copy.deepcopy(conv), alpha=alpha, engine=engine)
    return conv, layer, torch.randn(2, 4, 5, 6)


def rounded(layer: SelfAttention2d, dtype: torch.dtype) -> SelfAttention2d:
    """The layer that autocast makes: weight and bias rounded, positions as they are."""
    copied = copy.deepcopy(layer)
    copied.weight = nn.Parameter(layer.weight.detach().to(dtype))
    copied.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().to(dtype))
    return copied


@pytest.mark.parametrize(("engine", "alpha", "dtype"), CASES)
def test_gradients_under_autocast_are_those_of_the_layer(engine: str, alpha: float | None, dtype: torch.dtype) -> None:
    _, layer, x = make(engine, alpha)
    upstream = torch.randn(2, 6, 5, 5)
    with torch.autocast("cpu", dtype=dtype):
        observed = gradients(layer, x, upstream.to(dtype))
    literal = copy.deepcopy(layer).double()
    literal.engine = "literal"
    exact = gradients(literal, x.double(), upstream.to(dtype).double())
    with torch.no_grad():
        for parameter in (literal.weight, literal.bias):
            assert parameter is not None
            parameter.abs_()
    scale = gradients(literal, x.double().abs(), upstream.to(dtype).double().abs())
    for found, wanted, size in zip(observed, exact, scale, strict=True):
        assert found.dtype == torch.float32
        assert ((found.double() - wanted).abs() <= gradient_bound(layer, x, upstream, dtype, size)).all()


def gradient_bound(layer: SelfAttention2d, x: Tensor, upstream: Tensor, dtype: torch.dtype, size: Tensor) -> Tensor:
    """The error of a gradient whose absolute products sum to ``size``, whatever the order of the sums.

    Each factor and each intermediate result of a product is rounded to autocast's dtype: image, kernel and smoothed
    image on the way there, and as many on the way back. On some CPUs torch's own gradients add up in that dtype, too:
    over all outputs, or over all products of an output. Probabilities err as a softmax in float32 over all keys does.
    Every rounding may also underflow, by less than the dtype's smallest number, which is multiplied with one factor.
    """
    keys = layer.spec.pad(x)[0, 0].numel()
    terms = max(upstream[:, 0].numel(), layer.weight[0].numel() + layer.num_heads * 3)
    probabilities = gamma(16 * EXP_ULPS + (8 + layer.num_heads) * keys, unit_roundoff(torch.float32))
    relative = (1 + gamma(8 + terms, unit_roundoff(dtype))) * (1 + probabilities) - 1
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    largest = max(float(tensor.detach().abs().max()) for tensor in (x, upstream, layer.weight))
    return relative * size + (8 + terms) * smallest * (1 + largest)


def gradients(layer: SelfAttention2d, x: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
    """Gradients of sum(output * upstream) for input, weight and bias."""
    x = x.clone().requires_grad_()
    assert layer.bias is not None
    return torch.autograd.grad(layer(x), [x, layer.weight, layer.bias], upstream)


@pytest.mark.parametrize("engine", [AUTO, "separable"])
def test_float64_stays_float64_under_autocast(engine: str) -> None:
    conv, layer, x = make(engine, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer.double()(x.double()).dtype == conv.double()(x.double()).dtype == torch.float64


def test_a_layer_with_content_terms_is_the_same_but_for_rounded_values() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 2, 3, padding=1), alpha=2.0)
    content = layer.add_content(3)
    with torch.no_grad():
        content.query_weight.normal_()
        x = torch.randn(1, 2, 5, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            observed = layer(x)
        assert torch.equal(observed, rounded(layer, torch.bfloat16)(x.bfloat16()))


@pytest.mark.slow
def test_soft_attention_returns_under_autocast_where_torch_does_not() -> None:
    program = """
import torch
from conv2attn.convert import attention_from_conv
layer = attention_from_conv(torch.nn.Conv2d(8, 8, 3, padding=1), alpha=1.0)
with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
    print(layer(torch.randn(1, 8, 32, 32)).dtype)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "torch.bfloat16", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_a_compiled_layer_is_the_same_under_autocast(alpha: float | None) -> None:
    torch.compiler.reset()
    layer = attention_from_conv(nn.Conv2d(4, 6, 3, stride=(1, 2), padding=1, groups=2), alpha=alpha)
    x = torch.randn(2, 4, 9, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        expected, observed = layer(x), torch.compile(layer, backend="eager", fullgraph=True)(x)
    assert observed.dtype == torch.bfloat16
    unit = unit_roundoff(torch.bfloat16)
    magnitude = copy.deepcopy(layer)
    with torch.no_grad():
        magnitude.weight.abs_()
        assert magnitude.bias is not None
        magnitude.bias.abs_()
        # tables for stencils: float32 sums of the same products, rounded to bfloat16 twice
        bound = 2 * gamma(3, unit) * magnitude(x.abs()) * (1 + 3 * unit)
    assert ((observed.double() - expected.double()).abs() <= bound).all()
