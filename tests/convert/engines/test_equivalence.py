"""Every convolution equals its attention layer, in every engine, along any axes, transposed or not, and backward.

On integers nothing rounds, so equality is bitwise. On other values both sides stay within a derived bound: of the
certificate for outputs, of ``gamma`` for gradients, which are sums of products like the output.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.rounding import EXP_ULPS, gamma, left_out, unit_roundoff
from conv2attn.convert.engines import ENGINES
from conv2attn.proofs.campaign.strategies import INTEGER_LIMIT, convolutions_with_input, every_spec

ENGINE_NAMES = sorted(ENGINES)
SOFT_LAYER = attention_from_conv(nn.Conv2d(1, 1, 1), alpha=1.0)
SOFT_ENGINE_NAMES = [name for name in ENGINE_NAMES if ENGINES[name].refusal(SOFT_LAYER.values()) is None]
DTYPES = [torch.float32, torch.float64]


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


def input_range(x: Tensor) -> tuple[float, float]:
    return x.min().item(), x.max().item()


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@given(dtype=st.sampled_from(DTYPES), data=st.data())
def test_integers_give_bitwise_equal_outputs_and_gradients(
    engine: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    conv, x = data.draw(convolutions_with_input(dtype=dtype, integers=True, specs=every_spec()))
    cotangent = torch.randint(-INTEGER_LIMIT, INTEGER_LIMIT + 1, conv(x).shape).to(dtype)
    expected = output_and_gradients(conv, x, cotangent)
    observed = output_and_gradients(attention_from_conv(conv, engine=engine), x, cotangent)
    for name, value in expected.items():
        assert torch.equal(observed[name], value), name


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@given(dtype=st.sampled_from([*DTYPES, torch.bfloat16, torch.float16]), data=st.data())
def test_outputs_differ_by_at_most_the_certificate(engine: str, dtype: torch.dtype, data: st.DataObject) -> None:
    conv, x = data.draw(convolutions_with_input(dtype=dtype, specs=every_spec()))
    layer = attention_from_conv(conv, engine=engine)
    expected = conv(x)
    difference = (layer(x).double() - expected.double()).abs().transpose(0, 1).flatten(1).amax(1)
    bound = torch.tensor(certify(layer, input_range=input_range(x)).per_channel)
    assert (difference <= bound).all()


@pytest.mark.parametrize("engine", SOFT_ENGINE_NAMES)
@given(alpha=st.sampled_from([0.3, 1.0, 2.0, 7.7]), data=st.data())
def test_soft_attention_differs_by_at_most_the_certificate(engine: str, alpha: float, data: st.DataObject) -> None:
    conv, x = data.draw(convolutions_with_input(specs=every_spec()))
    layer = attention_from_conv(conv, alpha=alpha, engine=engine)
    difference = (layer(x).double() - conv(x).double()).abs().transpose(0, 1).flatten(1).amax(1)
    bound = torch.tensor(certify(layer, input_range=input_range(x)).per_channel)
    assert (difference <= bound).all()


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
    for engine in SOFT_ENGINE_NAMES:
        layer.engine = engine
        for name, value in output_and_gradients(layer, x, cotangent).items():
            error = (value - literal[name]).abs()
            bound = gamma(steps, unit_roundoff(torch.float64)) * scale[name]
            bound = bound + layer.spec.axes * left_out(torch.float64) * lost.get(name, 0)
            assert (error <= 2 * bound).all(), (engine, name)
