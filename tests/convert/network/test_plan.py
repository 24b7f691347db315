"""A plan says what the network itself would show, and changes nothing."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import ConvSpec
from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import GeometryError
from conv2attn.convert.network.plan import layer_input_sizes, plan_layers
from conv2attn.proofs.campaign.strategies import conv_specs, convolution_of
from tests.small_models import SMALL_MODELS


def convolutions(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]


def observed_sizes(model: nn.Module, x: Tensor) -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for name in convolutions(model):
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: sizes.update({name: Size(*inputs[0].shape[2:])})
        )
    model(x)
    return sizes


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_the_planned_input_sizes_are_those_of_a_real_run(name: str) -> None:
    model, size = SMALL_MODELS[name]().eval(), Size(20, 28)
    planned = layer_input_sizes(model, convolutions(model), size=size)
    assert planned == observed_sizes(model, torch.zeros(1, 3, *size))


@given(conv_specs(), st.integers(0, 8), st.integers(0, 8))
def test_the_memory_is_known_exactly_where_the_convolution_has_an_output(
    spec: ConvSpec, rows: int, columns: int
) -> None:
    size = Size(rows, columns)
    (layer,) = plan_layers(nn.Sequential(convolution_of(spec)), ["0"], size=size)
    assert (layer.name, layer.spec) == ("0", spec)
    assert layer.parameters_after == layer.parameters_before + 3 * spec.num_heads
    try:
        queries, keys = math.prod(spec.output_size(size)), math.prod(spec.padded_size(size))
    except GeometryError:
        assert (layer.input_size, layer.literal_bytes) == (None, None)
    else:
        assert (layer.input_size, layer.literal_bytes) == (size, 4 * spec.num_heads * queries * keys)


class ReadsAValue(nn.Module):
    """A network whose path depends on what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z: Tensor = self.second(y if y.sum().item() > 0 else -y)
        return z


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (ReadsAValue(), {"first": Size(6, 9)}),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(5, 5), nn.Conv2d(1, 1, 1)), {"0": Size(6, 9)}),
        (nn.ModuleDict({"a": nn.Conv2d(1, 1, 1)}), {}),
        (nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 7)), {"0": Size(6, 9)}),
    ],
    ids=["reads a value", "wants another size", "has no forward", "kernel does not fit"],
)
def test_sizes_are_known_as_far_as_the_network_runs(model: nn.Module, known: dict[str, Size]) -> None:
    names = convolutions(model)
    assert layer_input_sizes(model, names, size=Size(6, 9)) == known
    plans = {layer.name: layer.input_size for layer in plan_layers(model, names, size=Size(6, 9))}
    assert plans == dict.fromkeys(names) | known


def test_a_plan_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)).train()
    before = copy.deepcopy(model.state_dict())
    plan_layers(model, ["0", "2"], size=Size(8, 6))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(module.training and not module._forward_hooks for module in model.modules())
