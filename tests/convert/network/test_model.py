"""A converted model is the model, with attention in place of its convolutions, and nothing else changed."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import ConversionError, ConvSpec, convert_model, restore_model
from conv2attn.convert.errors import Problem, SelectionError, UnsupportedLayerError
from conv2attn.convert.network.convert import NOT_SELECTED, name_filter
from conv2attn.proofs.campaign.strategies import conv_specs, convolution_of, convolutions_with_input
from tests.small_models import Composite, assert_same_state, attention, composite_input

NAMES = [("stem",), ("blocks.0", "blocks.2"), ("named.a-b.0.0",), ("tied",)]


def snapshot(model: nn.Module) -> list[tuple[str, int, int]]:
    """What must not change when a conversion is refused: every module, every parameter, and its values."""
    modules = [(name, id(module), 0) for name, module in model.named_modules(remove_duplicate=False)]
    return modules + [(name, id(p), p._version) for name, p in model.named_parameters(remove_duplicate=False)]


# What a conversion keeps


@pytest.mark.parametrize("inplace", [False, True])
def test_the_converted_model_computes_the_same_bit_for_bit_and_a_copy_leaves_the_model_as_it_was(inplace: bool) -> None:
    model, x = Composite(), composite_input()
    expected = copy.deepcopy(model)(x)
    before, state = snapshot(model), copy.deepcopy(model.state_dict())
    converted = convert_model(model, inplace=inplace).model
    assert (converted is model) == inplace
    assert inplace or snapshot(model) == before
    assert torch.equal(converted(x), expected)
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.zero_()
    assert inplace or all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("inplace", [False, True])
def test_training_the_converted_model_and_restoring_it_is_training_the_model(inplace: bool) -> None:
    """In place by an optimiser that was made before."""
    model = Composite()
    reference = copy.deepcopy(model)
    parameters = dict(model.named_parameters())
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, reference)]
    converted = convert_model(model, inplace=inplace).model
    if inplace:
        assert all(converted.get_parameter(name) is parameter for name, parameter in parameters.items())
    else:
        optimisers[0] = torch.optim.SGD(converted.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        x = composite_input()
        for each, optimiser in zip((converted, reference), optimisers, strict=True):
            optimiser.zero_grad()
            torch.autograd.backward(each(x).square().mean())
            optimiser.step()
    assert_same_state(restore_model(converted), reference)


@given(convolutions_with_input())
def test_a_root_that_is_a_convolution_becomes_attention(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    model, report = convert_model(conv)
    assert attention(model).spec == report.layers[0].spec
    assert report.layers[0].names == ("",)
    assert torch.equal(model(x), conv(x))
    assert torch.equal(model(x[0]), conv(x[0]))


@pytest.mark.parametrize(
    ("options", "memory_format"),
    [
        # one row more below than above, and a padding mode that pads nothing
        ({"kernel_size": (2, 3), "padding": "same", "dilation": (1, 2), "groups": 1}, torch.channels_last),
        (
            {"kernel_size": (3, 1), "padding": "valid", "padding_mode": "circular", "stride": (3, 2)},
            torch.contiguous_format,
        ),
    ],
)
def test_unusual_padding_equals_bit_for_bit_in_any_memory_format(
    options: dict[str, Any], memory_format: torch.memory_format
) -> None:
    for rows, columns in itertools.product(range(3, 10), range(1, 9)):
        conv, x = nn.Conv2d(4, 6, **{"groups": 2, **options}), torch.randn(2, 4, rows, columns)
        x = x.to(memory_format=memory_format)
        assert torch.equal(convert_model(conv).model(x), conv(x)), (rows, columns)


def test_a_shared_module_is_converted_once_and_stays_shared_and_tied_parameters_stay_tied() -> None:
    model, report = convert_model(Composite())
    assert [layer.names for layer in report.layers] == NAMES
    assert attention(model, "blocks.0") is attention(model, "blocks.2")
    assert attention(model, "tied").weight is attention(model, "blocks.0").weight
    block = nn.Sequential(nn.Conv2d(2, 2, (1, 3), padding="same"))
    model, report = convert_model(nn.Sequential(block, nn.Sequential(block)))
    assert report.layers[0].names == ("0.0", "1.0.0")
    assert attention(model, "0.0") is attention(model, "1.0.0")


def test_modes_frozen_parameters_and_the_names_of_the_state_dict_stay_and_positions_are_added_and_not_trained() -> None:
    model = Composite()
    model.blocks.eval()
    model.stem.requires_grad_(False)
    modes = {name: module.training for name, module in model.named_modules(remove_duplicate=False)}
    required = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    converted = convert_model(model).model
    assert {n: m.training for n, m in converted.named_modules(remove_duplicate=False)} == modes
    assert {name: parameter.requires_grad for name, parameter in converted.named_parameters()} == required
    state, new = converted.state_dict(), ("alpha", "centers")
    assert [key for key in state if not key.endswith(new)] == list(model.state_dict())
    assert sum(key.endswith(new) for key in state) == 2 * sum(map(len, NAMES))
    missing, unexpected = converted.load_state_dict(model.state_dict(), strict=False)
    assert all(key.endswith(new) for key in missing)
    assert unexpected == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_dtype_stays_and_computes_the_same(dtype: torch.dtype) -> None:
    model, x = Composite().to(dtype), composite_input(dtype)
    converted = convert_model(model).model
    positions = {"alpha", "centers"}  # numbers about the grid, never in less than single precision
    entries = ((name.rpartition(".")[2], tensor) for name, tensor in converted.state_dict().items())
    dtypes = {(name in positions, tensor.dtype) for name, tensor in entries if tensor.is_floating_point()}
    assert dtypes == {(False, dtype), (True, torch.promote_types(dtype, torch.float32))}
    assert torch.equal(converted(x), model(x))


@pytest.mark.parametrize("inplace", [False, True])
def test_hooks_fire_and_their_handles_remove_them(inplace: bool) -> None:
    model, fired = Composite(), list[str]()
    conv: Any = model.stem
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
    torch.autograd.backward(converted(composite_input().requires_grad_()).sum())
    converted.load_state_dict(converted.state_dict())
    assert fired == ["pre", "post", "always", "backward pre", "backward", "save", "SelfAttention2d", "loaded"]
    fired.clear()
    for handle in handles:
        handle.remove()
    torch.autograd.backward((converted if inplace else model)(composite_input()).sum())
    assert fired == []


# What the report says


@given(st.lists(conv_specs(), min_size=1, max_size=3))
def test_the_report_describes_each_convolution(specs: list[ConvSpec]) -> None:
    convs = [convolution_of(spec) for spec in specs]
    report = convert_model(nn.Sequential(*convs)).report
    assert [layer.spec for layer in report.layers] == specs
    for conv, layer in zip(convs, report.layers, strict=True):
        assert layer.heads == conv.kernel_size[0] * conv.kernel_size[1]
        assert layer.parameters_before == sum(map(torch.numel, conv.parameters()))
        assert layer.parameters_after == layer.parameters_before + 3 * layer.heads
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["layers"][0]["spec"] == specs[0].to_json()


def test_the_filter_gets_each_convolution_with_its_names_and_the_report_says_what_it_left() -> None:
    model, calls = Composite(), dict[str, nn.Module]()

    def select(module: nn.Module, name: str) -> bool:
        calls[name] = module
        return name != "stem"

    converted, report = convert_model(model, filter_fn=select)
    assert calls == {name: model.get_submodule(name) for names in NAMES for name in names}
    assert [layer.names for layer in report.layers] == NAMES[1:]
    assert report.skipped == (Problem("stem", NOT_SELECTED),)
    assert type(converted.get_submodule("stem")) is nn.Conv2d


# Which layers are chosen by patterns


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), ["0", "1.conv1", "1.conv10", "2"]),
        (("1.*",), (), ["1.conv1", "1.conv10"]),
        (("1.conv?",), (), ["1.conv1"]),
        (("re:1[.]conv.",), (), ["1.conv1"]),
        (("re:[02]", "1.conv10"), (), ["0", "1.conv10", "2"]),
        (("1.*",), ("re:.*0",), ["1.conv1"]),
        (("1.*",), ("*",), []),
        (("0", "1.relu"), (), None),
        ((), ("0", "re:conv1"), None),
    ],
)
def test_a_layer_is_chosen_if_it_matches_an_include_and_no_exclude_and_a_pattern_without_one_is_refused(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: list[str] | None
) -> None:
    block = nn.ModuleDict({"conv1": nn.Conv2d(2, 2, 1), "conv10": nn.Conv2d(2, 2, 1), "relu": nn.ReLU()})
    model = nn.Sequential(nn.Conv2d(3, 2, 1), block, nn.ConvTranspose2d(2, 2, 1))
    if expected is None:
        with pytest.raises(SelectionError, match=r"'(1\.relu|re:conv1)' .* there are 0, 1\.conv1, 1\.conv10, 2$"):
            name_filter(model, include=include, exclude=exclude)
    else:
        selected = name_filter(model, include=include, exclude=exclude)
        assert [name for name in ("0", "1.conv1", "1.conv10", "2") if selected(model, name)] == expected


# What is refused


class PaddedConv2d(nn.Conv2d):
    """Computes something else than nn.Conv2d, as timm's Conv2dSame does."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.pad(input, (1, 1)))


class Upsampling(nn.ConvTranspose1d):
    """Computes what it likes."""


def conv2d(**changed: object) -> nn.Conv2d:
    """A convolution with attributes changed after construction."""
    conv = nn.Conv2d(2, 2, (2, 3), padding=1, padding_mode="circular")
    for name, value in changed.items():
        setattr(conv, name, value)
    return conv


jit: Any = torch.jit  # untyped
quantized: Any = torch.ao.nn.quantized


def hooked(conv: nn.Module) -> nn.Module:
    """A convolution whose weight a hook computes that PyTorch does not know."""
    weight = conv._parameters.pop("weight")
    vars(conv)["weight"] = weight
    conv.register_forward_pre_hook(lambda module, _: module.__dict__.update(weight=weight))
    return conv


DeformConv2d = type("DeformConv2d", (nn.Module,), {"__module__": "torchvision.ops.deform_conv"})


UNSUPPORTED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "other axes": (lambda: conv2d(kernel_size=(3,)), "not one that Conv2d computes"),
    "transposed subclass": (lambda: Upsampling(2, 2, 2), "a subclass of nn.ConvTranspose1d"),
    "subclass": (lambda: PaddedConv2d(2, 2, 2), "a subclass of nn.Conv2d"),
    "lazy": (lambda: nn.LazyConv2d(2, 2), "lazy"),
    "computed by a hook of its own": (lambda: hooked(conv2d()), "its weight is not a plain parameter"),
    "deformable": (DeformConv2d, "DeformConv2d is not one of PyTorch's convolutions"),
    "quantised": (lambda: quantized.Conv2d(2, 2, 2), "quantised"),
    "complex": (lambda: nn.Conv2d(2, 2, 2, dtype=torch.complex64), "complex64"),
    "replaced forward": (lambda: conv2d(forward=lambda x: x), "its forward method was replaced"),
    "scripted": (lambda: jit.script(conv2d()), "RecursiveScriptModule is not one of PyTorch"),
    "meta": (lambda: nn.Conv2d(2, 2, 2, device="meta"), "no values yet"),
    "changed padding": (lambda: conv2d(padding=(0, 1)), "its padding was changed"),
    "negative padding": (lambda: conv2d(padding=(-1, 0)), "not one that Conv2d computes"),
}


def partly_unsupported() -> nn.ModuleDict:
    with warnings.catch_warnings(action="ignore"):  # torch's own, about lazy and deprecated modules
        return nn.ModuleDict({"fine": nn.Conv2d(2, 2, 1)} | {kind: make() for kind, (make, _) in UNSUPPORTED.items()})


def test_all_unsupported_layers_are_named_in_one_error_and_nothing_is_changed() -> None:
    model = partly_unsupported()
    before = snapshot(model)
    with pytest.raises(UnsupportedLayerError) as caught:
        convert_model(model, inplace=True)
    assert [problem.name for problem in caught.value.problems] == list(UNSUPPORTED)
    for problem in caught.value.problems:
        assert UNSUPPORTED[problem.name][1] in problem.reason
        assert f"{problem.name}: {problem.reason}" in str(caught.value)
    assert snapshot(model) == before


def uncopied() -> nn.Module:
    """A model with a tensor of a graph, which PyTorch does not copy."""
    model = nn.Sequential(nn.Conv2d(2, 2, 1))
    model.kept = torch.ones(1, requires_grad=True) * 2
    return model


NOTHING = "nothing would be converted: "


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (convert_model(Composite()).model, {}, f"{NOTHING}the model holds 4 attention layers already"),
        (nn.Sequential(nn.Linear(2, 2)), {}, f"{NOTHING}the model has no convolution"),
        (Composite(), {"filter_fn": lambda module, name: False}, f"{NOTHING}none of the model's 4 convolutions"),
        (nn.Sequential(Upsampling(2, 3, 1)), {"skip_unsupported": True}, f"{NOTHING}1 layer cannot be converted: 0: "),
        (Composite(), {"filter_fn": lambda module, name: name != "blocks.2"}, r"shared by blocks\.0, blocks\.2, of"),
        (uncopied(), {}, "cannot be copied, inplace=True"),
        (nn.Sequential(conv2d(), conv2d().half()), {"inplace": True, "alpha": 1e39}, "alpha must be positive"),
    ],
)
def test_a_conversion_that_is_none_is_refused_with_the_reason_and_nothing_is_changed(
    model: nn.Module, options: dict[str, Any], reason: str
) -> None:
    before = snapshot(model)
    with pytest.raises(ConversionError, match=reason):
        convert_model(model, **options)
    assert snapshot(model) == before
