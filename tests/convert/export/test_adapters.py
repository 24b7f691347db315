"""Adapters of the weight of attention layers, as PyTorch's parametrisations: low-rank updates, and int8 weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from conv2attn.convert import SelfAttention, convert_model, restore_model

RANK = 2


class LowRank(nn.Module):
    """W + B A, W as a matrix of output channels; A is random and B zero at first, as in LoRA."""

    def __init__(self, weight: Tensor, rank: int = RANK) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, weight[0].numel()))
        self.b = nn.Parameter(torch.zeros(len(weight), rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.b @ self.a).view_as(weight)


class Int8(nn.Module):
    """Whole numbers from -127 to 127 and a scale for each output channel."""

    def forward(self, numbers: Tensor, scale: Tensor) -> Tensor:
        return numbers * scale

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        scale = weight.abs().amax(tuple(range(1, weight.ndim)), keepdim=True) / 127
        return (weight / scale).round().to(torch.int8), scale


Way = Callable[[nn.Module], nn.Module]


def low_rank(layer: nn.Module) -> nn.Module:
    return LowRank(layer.get_parameter("weight"))


def int8(layer: nn.Module) -> nn.Module:
    return Int8()


def cnn() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, (3, 2), stride=2, groups=2))


def adapted(model: nn.Module, way: Way) -> nn.Module:
    """A copy in which each layer's weight is computed in this way, and nothing else is trained."""
    model = copy.deepcopy(model).requires_grad_(False)
    for layer in list(model.modules()):
        if isinstance(layer, SelfAttention | nn.Conv2d):
            parametrize.register_parametrization(layer, "weight", way(layer))
    return model


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_an_update_of_zero_and_merging_keep_every_bit_and_only_the_update_is_trained(alpha: float | None) -> None:
    plain, x = convert_model(cnn(), alpha=alpha).model, torch.randn(2, 3, 9, 8)
    model, before = adapted(plain, low_rank), plain(x).detach()
    assert torch.equal(model(x), before)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name.rpartition(".")[2] for name in trained} == {"a", "b"}
    model(x).square().sum().backward()
    with torch.no_grad():
        for parameter in trained.values():
            assert parameter.grad is not None
            parameter.sub_(0.01 * parameter.grad)
        after = model(x)
        for layer in model.modules():
            if isinstance(layer, SelfAttention):
                parametrize.remove_parametrizations(layer, "weight")
        assert torch.equal(model(x), after)
    assert not torch.equal(after, before)


def test_an_adapted_cnn_and_its_attention_are_the_same_both_ways() -> None:
    plain = adapted(cnn(), low_rank)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    model = convert_model(plain).model
    x = torch.randn(2, 3, 9, 8)
    assert torch.equal(model(x), plain(x))
    assert torch.equal(restore_model(model)(x), plain(x))


def test_int8_attention_is_int8_convolution_and_keeps_int8() -> None:
    plain, x = cnn(), torch.randn(2, 3, 9, 8)
    model = adapted(convert_model(plain).model, int8)
    assert torch.equal(model(x), adapted(plain, int8)(x))
    kept = [value for value in model.state_dict().values() if value.dtype == torch.int8]
    assert sum(value.numel() for value in kept) == sum(each.numel() for each in plain.parameters() if each.ndim > 1)


def test_int8_attention_is_off_by_half_a_step_of_every_weight_at_most() -> None:
    plain = nn.Conv2d(3, 8, 3, padding=1).double()
    x = torch.rand(2, 3, 9, 8, dtype=torch.float64) * 2 - 1
    model = adapted(convert_model(plain, alpha=2.0).model, int8)
    weight = plain.weight.detach()
    steps = weight.abs().amax((1, 2, 3)) / 127
    bound = steps / 2 * weight[0].numel()  # attention averages numbers between -1 and 1
    difference = (model(x) - convert_model(plain, alpha=2.0).model(x)).abs().amax((0, 2, 3))
    assert (difference <= bound * (1 + 2**-20)).all()
    assert (difference > 0).all()
