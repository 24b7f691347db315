"""Behind a gate, content leaves a converted layer what it was, and the gate can be trained from there."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from conv2attn.convert import ConversionError, SelfAttention2d, attention_from_conv, certify
from conv2attn.convert.engines.literal import bytes_needed, project_values
from conv2attn.convert.heads.content import opening
from conv2attn.convert.size import Size
from tests.integers import integers, with_integers

SIZE = Size(4, 5)
GATE = torch.tensor([-1.0, 0.0, 0.25, 1.0, 2.0], dtype=torch.float64)


def convolution() -> nn.Conv2d:
    return with_integers(nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 1), dtype=torch.float64), largest=2)


def gated_layer(conv: nn.Conv2d, **options: object) -> SelfAttention2d:
    layer = attention_from_conv(conv, **options)  # type: ignore[call-overload]
    layer.add_content(4, gated=True)
    assert isinstance(layer, SelfAttention2d)
    return layer


def gate_of(layer: SelfAttention2d) -> nn.Parameter:
    assert layer.content is not None
    assert layer.content.gate is not None
    return layer.content.gate


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own, when it first loads this
def test_a_gate_stays_between_0_and_1_and_has_a_gradient_at_its_ends_and_on_the_way_back() -> None:
    gate = GATE.clone().requires_grad_()
    assert opening(GATE).tolist() == opening(gate).tolist() == [0, 0, 0.25, 1, 1]
    rising, falling = (torch.autograd.grad(slope * opening(gate).sum(), gate)[0] for slope in (0.5, -0.5))
    assert rising.tolist() == [0, 0.5, 0.5, 0.5, 0.5]  # descent would take the first further away
    assert falling.tolist() == [-0.5, -0.5, -0.5, -0.5, 0]
    with forward_ad.dual_level():
        opened = opening(forward_ad.make_dual(gate, torch.ones_like(GATE)))
        assert forward_ad.unpack_dual(opened).tangent.tolist() == [0, 1, 1, 1, 0]
    gates = torch.stack([GATE, GATE.flip(0)])
    gradients = torch.func.vmap(torch.func.grad(lambda gate: opening(gate).sum()))(gates)
    assert gradients.tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]]


def trained_gates() -> tuple[SelfAttention2d, Tensor]:
    """A layer whose gates lie on both sides of [0, 1] and within, and an input, of real numbers."""
    layer = gated_layer(convolution(), alpha=0.5)
    x = torch.randn(2, 2, 9, 7, dtype=torch.float64)
    assert layer.content is not None
    with torch.no_grad():
        for parameter in layer.content.parameters():
            parameter.normal_(std=0.5)
        gate_of(layer).copy_(torch.tensor([-0.3, -1.0, -0.01, 1.2, 3.0, 0.4]))
    return layer, x


def whole_gradient(layer: SelfAttention2d, x: Tensor, cotangent: Tensor) -> Tensor:
    """The derivative for g of sum(output * cotangent); the output is linear in g."""
    size, gate, before = Size(*x.shape[2:]), gate_of(layer), gate_of(layer).detach().clone()
    with torch.no_grad():
        gate.fill_(0)
        closed = layer.attention_probabilities(size, x=x)
        gate.fill_(1)
        opened = layer.attention_probabilities(size, x=x)
        gate.copy_(before)
    values = project_values(layer, layer.spec.pad(x)).detach()
    changes = torch.einsum("bhqk,hkbo->bhoq", (opened - closed).flatten(3), values)
    return (changes * cotangent.flatten(2).unsqueeze(1)).sum((0, 2, 3))


def cut_off(gradient: Tensor, gate: Tensor) -> Tensor:
    """What is left of a gradient where a step against it does not lead further from [0, 1]."""
    return gradient.masked_fill(((gate < 0) & (gradient > 0)) | ((gate > 1) & (gradient < 0)), 0)


@pytest.mark.parametrize(("engine", "queries"), [("auto", 1), ("literal", 1), ("literal", 10**6)])
def test_a_gate_s_gradient_is_cut_off_as_a_whole_however_many_queries_are_taken_at_a_time(
    engine: str, queries: int
) -> None:
    layer, x = trained_gates()
    layer.engine, size = engine, Size(*x.shape[2:])
    if engine == "literal":
        values, query, kept = bytes_needed(layer, size, batch=2)
        layer.memory_limit = values + math.prod(layer.spec.output_size(size)) * kept + queries * query
    cotangent = torch.randn_like(layer(x))
    (found,) = torch.autograd.grad(layer(x), gate_of(layer), cotangent)
    whole = whole_gradient(layer, x, cotangent)
    assert {bool(sign) for sign in whole[:3] > 0} == {True, False}  # some lead away and some back
    assert (found - cut_off(whole, gate_of(layer).detach())).abs().max() <= 1e-10 * whole.abs().max()


def test_a_closed_gate_leaves_the_convolution_bit_for_bit_and_costs_nothing_where_it_is_not_trained() -> None:
    conv, x = convolution(), integers(3, 2, *SIZE, largest=2, dtype=torch.float64)
    layer = gated_layer(conv)
    assert torch.equal(layer(x), conv(x))  # computed with its content, whose gate is trained
    with torch.no_grad():
        assert torch.equal(layer(x), conv(x))
        layer.engine = "factored"
        layer(x)
        gate_of(layer)[0] = 0.5
        with pytest.raises(ConversionError, match="content terms"):
            layer(x)


def test_a_gate_is_never_less_than_single_precision() -> None:
    layer = gated_layer(nn.Conv2d(2, 3, 3)).bfloat16()
    assert layer.content is not None
    assert (gate_of(layer).dtype, layer.content.key_weight.dtype) == (torch.float32, torch.bfloat16)
    assert gate_of(layer.double()).dtype == torch.float64


def test_a_layer_is_certified_while_its_gate_is_closed() -> None:
    conv = nn.Conv2d(2, 3, 3)
    layer = gated_layer(conv, alpha=4.0)
    assert certify(layer, input_range=(-1, 1)) == certify(attention_from_conv(conv, alpha=4.0), input_range=(-1, 1))
    with torch.no_grad():
        gate_of(layer)[4] = 0.5
    with pytest.raises(ConversionError, match="closed gate"):
        certify(layer, input_range=(-1, 1))
