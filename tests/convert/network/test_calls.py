"""Convolutions that are called as functions are converted when a model is traced, and everything else stays."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, fx, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    SelfAttention,
    attention_from_conv,
    convert_model,
    restore_model,
)
from conv2attn.convert.errors import UnsupportedLayerError
from conv2attn.proofs.campaign.layers import smallest_input
from conv2attn.proofs.campaign.strategies import convolution_of, every_spec


class Bare(nn.Module):
    """One kernel of its own, one of a child that is never called, and a layer."""

    step = 2

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 4, 3, 3))
        self.blur = nn.Buffer(torch.ones(6, 1, 2, 2) / 4)
        self.held = nn.Conv2d(6, 4, 3)
        self.layer = nn.Conv2d(4, 4, 1)
        self.note: Any = None

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(self.layer(x), self.kernel, stride=self.step, padding=1).relu()
        x = F.conv2d(x, self.blur, groups=len(self.blur))
        return through_a_helper(x, self.held.weight, self.held.bias)


def through_a_helper(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.conv2d(x, weight, bias, padding="same")


class Around(nn.Module):
    """A network whose code cannot be traced, and that asks a child for what it is."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        inner: Any = self.inner
        output: Tensor = inner(x) if x.sum() > -1e9 and inner.note == "kept" else x
        return output


class OneCall(nn.Module):
    """One call, given by a function."""

    def __init__(self, call: Callable[[OneCall, Tensor], Tensor], shape: tuple[int, ...] = (4, 3, 3, 3)) -> None:
        super().__init__()
        self.call = call
        self.kernel = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        call: Callable[[OneCall, Tensor], Tensor] = self.call
        return call(self, x)


def image() -> Tensor:
    return torch.randn(2, 4, 9, 8)


def attention(model: nn.Module) -> dict[str, SelfAttention]:
    return {name: module for name, module in model.named_modules() if isinstance(module, SelfAttention)}


@pytest.mark.parametrize("inplace", [False, True])
def test_every_call_becomes_a_layer_that_computes_the_same_bits(inplace: bool) -> None:
    model, x = Bare(), image()
    expected, before = model(x), {name: value.clone() for name, value in model.state_dict().items()}
    converted = convert_model(model, trace=True, inplace=inplace).model
    assert set(attention(converted)) == {"held", "layer", "conv2d", "conv2d_1"}
    assert torch.equal(converted(x), expected)
    assert torch.equal(model(x), expected)
    assert {name: value.tolist() for name, value in model.state_dict().items()} == {
        k: v.tolist() for k, v in before.items()
    }
    shared = {id(parameter) for parameter in model.parameters()} & {
        id(parameter) for parameter in converted.parameters()
    }
    assert len(shared) == (5 if inplace else 0)


def test_the_way_back_has_convolutions_in_the_places_of_calls() -> None:
    model, x = Bare(), image()
    restored = restore_model(convert_model(model, trace=True).model)
    assert not attention(restored)
    assert torch.equal(restored(x), model(x))
    assert restored.get_parameter("conv2d.weight").tolist() == model.kernel.tolist()
    assert "kernel" not in restored.state_dict()


@given(every_spec())
def test_every_function_means_the_module_s_convolution(spec: ConvSpec) -> None:
    if spec.padding_mode != "zeros":
        return
    conv, size = convolution_of(spec, dtype=torch.float64), smallest_input(spec)
    function = getattr(F, f"conv{'_transpose' if spec.transposed else ''}{spec.axes}d")
    options: dict[str, Any] = {"stride": conv.stride, "padding": conv.padding, "dilation": conv.dilation}
    options |= {"groups": conv.groups} | ({"output_padding": conv.output_padding} if spec.transposed else {})

    class Function(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, self.shift = conv.weight, conv.bias

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = function(x, self.kernel, self.shift, **options)
            return output

    x = torch.randn(2, spec.in_channels, *size, dtype=torch.float64)
    made = convert_model(fx.symbolic_trace(Function()), trace=True).model
    (layer,) = attention(made).values()
    assert layer.spec.arguments() == spec.arguments()
    output: Tensor = attention_from_conv(conv)(x)
    assert torch.equal(made(x), output)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # PyTorch's own, when it copies
def test_an_exported_program_is_a_graph_whose_names_stay() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(6, 4, 3, stride=2)).eval()
    x = image()
    program = torch.export.export(model, (x,)).run_decompositions()
    converted, report = convert_model(program.module(), trace=True)
    assert [layer.names for layer in report.layers] == [("0",), ("2",)]
    assert set(model.state_dict()) < set(converted.state_dict())
    assert torch.equal(converted(x), model(x))
    assert torch.equal(restore_model(converted)(x), model(x))


def test_what_is_not_traced_stays_as_it_is() -> None:
    inner = Bare()
    inner.note = "kept"
    model, x, calls = Around(inner), image(), []
    inner.register_forward_hook(lambda *_: calls.append(1))
    converted = convert_model(model, trace=True).model
    assert type(converted) is Around
    assert torch.equal(converted(x), model(x))
    assert len(calls) == 2  # the hook runs in the model and in its copy


def and_changes_its_module(module: Any, x: Tensor) -> Tensor:
    module.last = x
    return F.conv2d(x, module.kernel)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda self, x: F.conv2d(x, self.kernel * 2), "its kernel is computed from others"),
        (lambda self, x: F.conv2d(x, self.kernel, stride=x.shape[0]), "its stride is computed"),
        (lambda self, x: F.conv2d(x, self.kernel) if x.sum() > 0 else x, "torch.fx cannot trace it"),
        (lambda self, x: F.dropout(F.conv2d(x, self.kernel), training=self.training), "something else in training"),
        (and_changes_its_module, "its code changes its last"),
    ],
)
def test_a_call_that_no_layer_can_replace_is_refused_by_name(call: Any, reason: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 1), OneCall(call)).eval()
    before = copy.deepcopy(model)
    with pytest.raises(UnsupportedLayerError, match=rf"1(\.conv2d)?: .*{reason}"):
        convert_model(model, trace=True)
    assert [type(module) for module in model.modules()] == [type(module) for module in before.modules()]
    converted, report = convert_model(model, trace=True, skip_unsupported=True)
    assert list(attention(converted)) == ["0"]
    assert [problem.name.partition(".")[0] for problem in report.skipped] == ["1"]
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(converted(x), model(x))


class WithDefault(nn.Module):
    """A call whose code asks what a trace cannot know."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 3, 1, 1))

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0) -> Tensor:
        x = F.conv2d(x if mask is None else x * mask, self.kernel) * scale
        return x if scale != 1.0 else -x


def test_an_argument_with_a_default_keeps_it_or_the_call_fails() -> None:
    model, x = WithDefault(), torch.randn(1, 3, 4, 4)
    converted = convert_model(model, trace=True).model
    assert torch.equal(converted(x), model(x))
    assert torch.equal(converted(x, None, scale=2.0), model(x))
    for other in ({"mask": x}, {"scale": 1.0}):
        with pytest.raises(AssertionError, match="specialized"):
            converted(x, **other)


def test_a_forward_of_the_instance_is_not_traced() -> None:
    model = Bare()
    model.forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(ConversionError, match="replaced on the instance"):
        convert_model(model, trace=True)
