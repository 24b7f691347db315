"""A converted model is the model, with attention in place of its convolutions, and nothing else changed."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from conv2attn.convert import ConversionError, SelfAttention2d, certify, convert_model
from conv2attn.convert.errors import EngineError, UnsupportedLayerError
from conv2attn.convert.model import NOT_SELECTED
from conv2attn.proofs.strategies import conv_specs, convolution_of, convolutions_with_input


class Network(nn.Module):
    """Convolutions in a list, a dictionary and a nested sequence; some shared, tied, grouped; one read outside."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Conv2d(4, 4, (3, 2), padding="same", groups=2)
        self.stem = nn.Conv2d(2, 4, (2, 3), stride=(1, 2), padding=(1, 0))
        self.blocks = nn.ModuleList([shared, nn.BatchNorm2d(4), shared])
        self.named = nn.ModuleDict({"a-b": nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1)), nn.ReLU())})
        self.tied = nn.Conv2d(4, 4, (3, 2), padding="same", groups=2, bias=False)
        self.tied.weight = shared.weight
        self.head = nn.Linear(self.stem.out_channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 2, rows, columns] to [batch, 3]."""
        x = self.stem(x) * self.stem.kernel_size[1] + self.stem.weight.mean()
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.tied(self.named["a-b"](x)).mean((2, 3)))
        return scores


NAMES = [("stem",), ("blocks.0", "blocks.2"), ("named.a-b.0.0",), ("tied",)]


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(3, 2, 7, 10, dtype=dtype)


def attention(model: nn.Module, name: str = "") -> SelfAttention2d:
    layer = model.get_submodule(name)
    assert isinstance(layer, SelfAttention2d)
    return layer


def snapshot(model: nn.Module) -> list[object]:
    """What must not change when a conversion is refused: every module and parameter object, and every value."""
    objects = [*model.modules(), *model.parameters()]
    return [[id(each) for each in objects], [parameter.tolist() for parameter in model.parameters()]]


# What a conversion keeps


@pytest.mark.parametrize("inplace", [False, True])
def test_the_converted_model_computes_the_same_bit_for_bit(inplace: bool) -> None:
    model, x = Network(), images()
    expected = copy.deepcopy(model)(x)
    converted = convert_model(model, inplace=inplace).model
    assert torch.equal(converted(x), expected)
    assert (converted is model) == inplace


def test_a_copy_leaves_the_model_as_it_was() -> None:
    model = Network()
    before, state = snapshot(model), copy.deepcopy(model.state_dict())
    converted = convert_model(model).model
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.zero_()
    assert snapshot(model) == before
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_an_optimiser_made_before_a_conversion_in_place_trains_the_converted_model() -> None:
    model = Network()
    reference = copy.deepcopy(model)
    parameters = dict(model.named_parameters())
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, reference)]
    converted = convert_model(model, inplace=True).model
    assert all(converted.get_parameter(name) is parameter for name, parameter in parameters.items())
    for _ in range(2):
        x = images()
        for each, optimiser in zip((converted, reference), optimisers, strict=True):
            torch.autograd.backward(each(x).square().sum())
            optimiser.step()
    state = converted.state_dict()
    assert all(torch.equal(state[key], value) for key, value in reference.state_dict().items())


@given(convolutions_with_input())
def test_a_root_that_is_a_convolution_becomes_attention(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    model, report = convert_model(conv)
    assert attention(model).spec == report.layers[0].spec
    assert report.layers[0].names == ("",)
    assert torch.equal(model(x), conv(x))
    assert torch.equal(model(x[0]), conv(x[0]))


@given(convolutions_with_input(integers=True))
def test_a_literal_root_equals_its_convolution_on_integers(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    assert torch.equal(convert_model(conv, engine="literal").model(x), conv(x))


def test_a_shared_module_is_converted_once_and_stays_shared() -> None:
    model, report = convert_model(Network())
    assert [layer.names for layer in report.layers] == NAMES
    assert attention(model, "blocks.0") is attention(model, "blocks.2")


def test_a_module_under_a_shared_parent_stays_shared() -> None:
    block = nn.Sequential(nn.Conv2d(2, 2, (1, 3), padding="same"))
    model, report = convert_model(nn.Sequential(block, nn.Sequential(block)))
    assert report.layers[0].names == ("0.0", "1.0.0")
    assert attention(model, "0.0") is attention(model, "1.0.0")


@pytest.mark.parametrize("inplace", [False, True])
def test_tied_parameters_stay_tied(inplace: bool) -> None:
    model = convert_model(Network(), inplace=inplace).model
    assert attention(model, "tied").weight is attention(model, "blocks.0").weight


def test_modes_stay_also_mixed_ones() -> None:
    model = Network()
    model.blocks.eval()
    modes = {name: module.training for name, module in model.named_modules(remove_duplicate=False)}
    converted = convert_model(model).model
    assert {n: m.training for n, m in converted.named_modules(remove_duplicate=False)} == modes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_stays_and_computes_the_same(dtype: torch.dtype) -> None:
    model, x = Network().to(dtype), images(dtype)
    converted = convert_model(model).model
    assert {parameter.dtype for parameter in converted.parameters()} == {dtype}
    assert torch.equal(converted(x), model(x))


def test_frozen_parameters_stay_frozen_and_positions_do_not_train() -> None:
    model = Network()
    model.stem.requires_grad_(False)
    required = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    for name, parameter in convert_model(model).model.named_parameters():
        assert parameter.requires_grad == required.get(name, False)


def test_the_state_dict_keeps_its_names_and_order_and_gains_positions() -> None:
    model = Network()
    state = convert_model(model).model.state_dict()
    new = ("alpha", "centers")
    assert [key for key in state if not key.endswith(new)] == list(model.state_dict())
    assert sum(key.endswith(new) for key in state) == 2 * sum(map(len, NAMES))


def test_the_state_dict_of_the_cnn_loads_but_for_positions() -> None:
    model, other = Network(), Network()
    converted = convert_model(other).model
    missing, unexpected = converted.load_state_dict(model.state_dict(), strict=False)
    assert {key.rpartition(".")[2] for key in missing} == {"alpha", "centers"}
    assert unexpected == []
    x = images()
    assert torch.equal(converted.eval()(x), model.eval()(x))


@pytest.mark.parametrize("inplace", [False, True])
def test_hooks_fire_and_their_handles_remove_them(inplace: bool) -> None:
    model, fired = Network(), list[str]()
    conv = model.stem
    handles = [
        conv.register_forward_pre_hook(lambda module, args: fired.append("pre")),
        conv.register_forward_hook(lambda module, args, kwargs, output: fired.append("post"), with_kwargs=True),
        conv.register_forward_hook(lambda module, args, output: fired.append("always"), always_call=True),
        conv.register_full_backward_pre_hook(lambda module, gradient: fired.append("backward pre")),
        conv.register_full_backward_hook(lambda module, wanted, gradient: fired.append("backward")),
        conv.register_state_dict_pre_hook(lambda module, prefix, keep_vars: fired.append("save")),
        conv.register_load_state_dict_pre_hook(lambda module, *rest: fired.append(type(module).__name__)),
        conv.register_load_state_dict_post_hook(lambda module, keys: fired.append("loaded")),
    ]
    del conv
    converted = convert_model(model, inplace=inplace).model
    gc.collect()  # hooks that know their module must not know the old one
    torch.autograd.backward(converted(images()).sum())
    converted.load_state_dict(converted.state_dict())
    assert fired == ["pre", "post", "always", "backward pre", "backward", "save", "SelfAttention2d", "loaded"]
    fired.clear()
    for handle in handles:
        handle.remove()
    torch.autograd.backward((converted if inplace else model)(images()).sum())
    assert fired == []


def test_a_hook_that_changes_the_output_still_does() -> None:
    model = Network()
    model.stem.register_forward_hook(lambda module, args, output: 2 * output)
    x = images()
    assert torch.equal(convert_model(model).model(x), model(x))


def test_a_traced_graph_module_converts() -> None:
    model = fx.symbolic_trace(Network())
    x = images()
    converted, report = convert_model(model)
    assert isinstance(converted, fx.GraphModule)
    assert len(report.layers) == 4
    assert torch.equal(converted(x), model(x))


def test_a_wrapped_model_converts_under_the_wrapper_s_names() -> None:
    model, x = nn.DataParallel(Network()), images()
    converted, report = convert_model(model)
    assert [layer.name for layer in report.layers] == [f"module.{names[0]}" for names in NAMES]
    assert torch.equal(converted(x), model(x))


def test_an_attribute_named_original_name_is_no_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU())
    model[1].original_name = None
    assert len(convert_model(model).report.layers) == 1


# What happens to a converted model


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_converted_model_compute_the_same(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = convert_model(Network()).model
    x = images()
    expected = model(x)
    again = copied(model)
    assert torch.equal(again(x), expected)
    assert repr(again) == repr(model)
    assert attention(again, "blocks.0") is attention(again, "blocks.2")


def test_a_converted_model_survives_torch_save(tmp_path: Path) -> None:
    model = convert_model(Network()).model
    torch.save(model, tmp_path / "model.pt")
    x = images()
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@given(data=st.data())
def test_a_cast_after_the_conversion_stays_within_the_certificate(dtype: torch.dtype, data: st.DataObject) -> None:
    conv, x = data.draw(convolutions_with_input())
    layer = attention(convert_model(conv, engine="literal").model.to(dtype))
    conv, x = conv.to(dtype), x.to(dtype)
    difference = (layer(x).double() - conv(x).double()).abs().amax((0, 2, 3))
    assert (difference <= torch.tensor(certify(layer, input_range=(x.min().item(), x.max().item())).per_channel)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_to_half_stays_exact(dtype: torch.dtype) -> None:
    model = Network()
    converted, x = convert_model(model).model.to(dtype), images(dtype)
    assert torch.equal(converted(x), model.to(dtype)(x))


# What the report says


@given(conv_specs(max_kernel=7), st.integers(1, 3))
def test_a_converted_model_is_at_most_one_percent_and_a_kilobyte_per_layer_larger(spec: object, depth: int) -> None:
    del depth
