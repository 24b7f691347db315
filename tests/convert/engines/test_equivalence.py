"""Every convolution equals its attention layer, in every engine, along any axes, transposed or not, and backward.

The campaign's checks compare: equal on integers, within the certificate on other values. Soft engines have gradients
within ``gamma`` of each other, which are sums of products like the output.
"""

from __future__ import annotations

import math

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, left_out, unit_roundoff
from conv2attn.convert.engines import ENGINES
from conv2attn.proofs.campaign.checks import compare_layer
from conv2attn.proofs.campaign.layers import DTYPES, MEMORY_FORMATS, SOFT_ALPHAS, RandomLayer, may_be_wrong
from conv2attn.proofs.campaign.strategies import convolutions_with_input, every_spec, input_sizes

SOFT_LAYER = attention_from_conv(nn.Conv2d(1, 1, 1), alpha=1.0)
SOFT_ENGINES = [name for name in ENGINES if ENGINES[name].refusal(SOFT_LAYER.values()) is None]


def output_and_gradients(module: nn.Module, x: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
    """The output, and the gradients of sum(output * cotangent) for the input, the weight and the bias."""
    x = x.detach().requires_grad_()
    output = module(x)
    parameters = {name: p for name, p in module.named_parameters() if name in ("weight", "bias")}
    gradients = torch.autograd.grad(output, [x, *parameters.values()], cotangent)
    return {"output": output.detach()} | dict(zip(("input", *parameters), gradients, strict=True))


def absolute_sums(layer: nn.Module, x: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
    """Output and gradients with every product replaced by its absolute value, in double precision."""
    layer = layer.double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name in ("weight", "bias"):
                parameter.abs_()
    return output_and_gradients(layer, x.double().abs(), cotangent.double().abs())


@st.composite
def layers(draw: st.DrawFn) -> RandomLayer:
    spec = draw(every_spec())
    size, dtype = draw(input_sizes(spec)), draw(st.sampled_from(DTYPES))
    assume(not may_be_wrong(spec, size, dtype))
    alpha, seed = draw(st.sampled_from(SOFT_ALPHAS)), draw(st.integers(0, 2**32 - 1))
    return RandomLayer(spec, size, draw(st.integers(1, 3)), dtype, alpha, seed, draw(st.sampled_from(MEMORY_FORMATS)))


@given(layers())
def test_a_layer_has_no_violation_in_any_check_of_the_campaign(layer: RandomLayer) -> None:
    assert [str(made) for made in compare_layer(layer) if not made.holds] == []


@given(alpha=st.sampled_from([0.5, 2.0, 16.0]), data=st.data())
def test_soft_engines_agree_with_the_literal_one_in_double_precision(alpha: float, data: st.DataObject) -> None:
    conv, x = data.draw(convolutions_with_input(dtype=torch.float64, specs=every_spec()))
    cotangent = torch.randn_like(conv(x))
    layer = attention_from_conv(conv, alpha=alpha, engine="literal")
    layer.memory_limit = 2**40
    literal = output_and_gradients(layer, x, cotangent)
    scale = absolute_sums(attention_from_conv(conv, alpha=alpha, engine="factored"), x, cotangent)
    keys = math.prod(layer.spec.padded_size(Size(*x.shape[2:])))
    # Two tables, or one: each entry a quotient of exponentials; then sums over keys, heads, channels and queries.
    steps = 8 * EXP_ULPS + (4 + layer.num_heads) * keys + cotangent.numel() + conv.weight.numel()
    # Along each axis, keys that weigh ``left_out`` together are left out: at most that much of the largest sums.
    weights, cotangents, largest = conv.weight.abs().sum(), cotangent.abs().sum(), x.abs().max()
    lost = {"output": weights * largest, "input": weights * cotangents, "weight": largest * cotangents}
    for engine in SOFT_ENGINES:
        layer.engine = engine
        for name, value in output_and_gradients(layer, x, cotangent).items():
            error = (value - literal[name]).abs()
            bound = gamma(steps, unit_roundoff(torch.float64)) * scale[name]
            bound = bound + layer.spec.axes * left_out(torch.float64) * lost.get(name, 0)
            assert (error <= 2 * bound).all(), (engine, name)
