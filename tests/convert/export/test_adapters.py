"""Adapters of the weight of attention layers, as PyTorch's parametrisations: low-rank updates, and int8 weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from conv2attn.convert import SelfAttention, SelfAttention2d, convert_model, restore_model

RANK = 2


class LowRank(nn.Module):
    """W + B A, W as a matrix of output channels; A is random and B zero at first, as in LoRA."""

    def __init__(self, weight: Tensor, rank: int = RANK) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, weight[0].numel()))
        self.b = nn.Parameter(torch.zeros(len(weight), rank))

    def forward(self, weight: Tensor) -> Tensor:
        """W + B A."""
        return weight + (self.b @ self.a).view_as(weight)


class Int8(nn.Module):
    """Whole numbers from -127 to 127 and a scale for each output channel."""

    def forward(self, numbers: Tensor, scale: Tensor) -> Tensor:
        """The weight."""
        return numbers * scale

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers nearest to a weight, and their scale."""
        scale = weight.abs().amax(tuple(range(1, weight.ndim)), keepdim=True) / 127
        return (weight / scale).round().to(torch.int8), scale


def convolutions() -> tuple[nn.Conv2d, nn.Conv2d]:
    return nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, (3, 2), stride=2, groups=2)


def cnn() -> nn.Sequential:
    first, second = convolutions()
    return nn.Sequential(first, nn.ReLU(), second)


def adapted(model: nn.Module, kind: type[SelfAttention] | type[nn.Conv2d]) -> nn.Module:
    """A copy in which only the updates are trained."""
    model = copy.deepcopy(model).requires_grad_(False)
    for layer in list(model.modules()):
        if isinstance(layer, kind):
            parametrize.register_parametrization(layer, "weight", LowRank(layer.weight))
    return model


def in_int8(model: nn.Module, kind: type[SelfAttention] | type[nn.Conv2d]) -> nn.Module:
    model = copy.deepcopy(model).requires_grad_(False)
    for layer in list(model.modules()):
        if isinstance(layer, kind):
            parametrize.register_parametrization(layer, "weight", Int8())
    return model


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_an_update_of_zero_leaves_every_bit_of_the_output(alpha: float | None) -> None:
    model = convert_model(cnn(), alpha=alpha).model
    x = torch.randn(2, 3, 9, 8)
    assert torch.equal(adapted(model, SelfAttention2d)(x), model(x))


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_only_the_update_is_trained_and_merging_keeps_every_bit(alpha: float | None) -> None:
    model = adapted(convert_model(cnn(), alpha=alpha).model, SelfAttention2d)
    x = torch.randn(2, 3, 9, 8)
    before = model(x).detach()
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
    plain = adapted(cnn(), nn.Conv2d)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    model = convert_model(plain).model
    x = torch.randn(2, 3, 9, 8)
    assert torch.equal(model(x), plain(x))
    assert torch.equal(restore_model(model)(x), plain(x))


def test_int8_attention_is_int8_convolution_and_keeps_int8() -> None:
    plain = cnn()
    x = torch.randn(2, 3, 9, 8)
    model = in_int8(convert_model(plain).model, SelfAttention2d)
    assert torch.equal(model(x), in_int8(plain, nn.Conv2d)(x))
    kept = [value for value in model.state_dict().values() if value.dtype == torch.int8]
    assert sum(value.numel() for value in kept) == sum(layer.weight.numel() for layer in convolutions())


def test_int8_attention_is_off_by_half_a_step_of_every_weight_at_most() -> None:
    plain = convolutions()[0].double()
    x = torch.rand(2, 3, 9, 8, dtype=torch.float64) * 2 - 1
    model = in_int8(convert_model(plain, alpha=2.0).model, SelfAttention2d)
    weight = plain.weight.detach()
    steps = weight.abs().amax((1, 2, 3)) / 127
    bound = steps / 2 * weight[0].numel()  # attention averages numbers between -1 and 1
    difference = (model(x) - convert_model(plain, alpha=2.0).model(x)).abs().amax((0, 2, 3))
    assert (difference <= bound * (1 + 2**-20)).all()
    assert (difference > 0).all()
