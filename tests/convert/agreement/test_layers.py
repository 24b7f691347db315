"""Layers compared on images: what a layer does by itself, and what it inherits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from conv2attn.convert import (
    ConversionError,
    SelfAttention2d,
    certify_data,
    compare_layers,
    convert_model,
    measure_input,
)
from conv2attn.convert.certificate.layer import LayerComparison
from conv2attn.convert.layer.layer import set_engine
from tests.small_models import SMALL_MODELS


class Calling(nn.Module):
    """A convolution, and a function that calls it."""

    def __init__(self, function: Callable[[Any, Tensor], Any], conv: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(2, 3, 2) if conv is None else conv, function

    def forward(self, x: Tensor) -> Any:
        """Applies the function."""
        return self.function(self.conv, x)


def compared(
    function: Callable[[Any, Tensor], Any], *batches: Tensor, conv: nn.Module | None = None
) -> LayerComparison:
    """The convolution's layer, in soft attention, on images."""
    cnn = Calling(function, conv).eval()
    (found,) = compare_layers(cnn, convert_model(cnn, alpha=1.0).model, batches)
    return found


def test_each_call_of_a_layer_is_compared_with_the_same_call_of_the_convolution() -> None:
    x = torch.rand(2, 2, 4, 5)
    once, twice = compared(lambda conv, x: conv(x), x), compared(lambda conv, x: (conv(x), conv(x + 9)), x)
    assert once.own == once.total
    assert twice.own == twice.total
    assert twice.inherited == 0


def test_the_largest_of_all_batches_is_kept() -> None:
    conv, small, large = nn.Conv2d(2, 3, 2, bias=False), torch.rand(2, 2, 4, 5), 4 + torch.rand(1, 2, 4, 5)
    each = [compared(lambda conv, x: conv(x), *batches, conv=conv) for batches in ((small,), (large,), (small, large))]
    for name in ("own", "total", "outputs"):
        values = [getattr(layer, name) for layer in each]
        assert values[0] > 0
        assert values[2] == max(values[:2])
    with torch.no_grad():
        assert each[0].outputs == float(conv(small).abs().max()) < each[1].outputs
    assert each[2].bound >= max(each[0].bound, each[1].bound)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_transposed_layer_is_compared_at_the_size_that_it_is_told(by_name: bool) -> None:
    def double(conv: Any, x: Tensor) -> Any:
        size = [2 * length + 2 for length in x.shape[2:]]
        return conv(x, output_size=size) if by_name else conv(x, size)

    found = compared(double, torch.rand(2, 2, 4, 5), conv=nn.ConvTranspose2d(2, 3, 3, stride=2))
    assert 0 < found.own == found.total <= found.bound


def test_a_layer_s_bound_is_not_a_number_where_one_of_its_inputs_is_not_finite() -> None:
    finite, odd = torch.rand(1, 2, 4, 5), torch.full((1, 2, 4, 5), torch.inf)
    for batches in ([finite, odd], [odd, finite], [odd]):
        found = compared(lambda conv, x: conv(x), *batches)
        assert math.isnan(found.bound)
        assert math.isnan(found.own)


def test_a_network_that_calls_a_layer_more_often_than_the_cnn_is_refused() -> None:
    calls = iter([1, 2])
    with pytest.raises(ConversionError, match="the CNN does not call conv as often as the converted network"):
        compared(lambda conv, x: [conv(x) for _ in range(next(calls))], torch.rand(1, 2, 4, 5))


def test_a_layer_of_two_names_has_its_first_and_is_no_two_layers() -> None:
    conv = nn.Conv2d(2, 2, 1)
    cnn = nn.Sequential(conv, nn.ReLU(), conv).eval()
    model = convert_model(cnn).model
    assert [layer.name for layer in compare_layers(cnn, model, [torch.rand(1, 2, 4, 5)])] == ["0"]
    other = convert_model(nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 1)).eval()).model
    with pytest.raises(ConversionError, match="the CNN has no layer 2"):
        compare_layers(cnn, other, [torch.rand(1, 2, 4, 5)])


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_every_layer_stays_within_its_bound_and_parts_add_up(name: str) -> None:
    cnn = SMALL_MODELS[name]().eval()
    model = convert_model(cnn, alpha=5.0).model
    layers = compare_layers(cnn, model, torch.randn(4, 3, 20, 18).split(2))
    names = [name for name, module in model.named_modules() if isinstance(module, SelfAttention2d)]
    assert [layer.name for layer in layers] == names
    assert layers[0].inherited == 0 < layers[0].own
    for layer in layers:
        assert layer.own <= layer.bound
        assert layer.total <= (layer.own + layer.inherited) * (1 + 1e-5)  # float32 differences of differences


def test_a_difference_in_one_layer_is_found_there_and_inherited_below() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 1)).eval()
    model = convert_model(cnn).model
    with torch.no_grad():
        model[1].weight[0, 0, 0, 0] += 1  # type: ignore[index]
    before, wrong, after = compare_layers(cnn, model, [torch.randn(2, 3, 9, 8)])
    assert before.own <= before.bound
    assert wrong.own > wrong.bound
    assert after.own <= after.bound < after.inherited


def test_hooks_are_gone_afterwards_also_after_an_error() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    model = convert_model(cnn).model
    with pytest.raises(RuntimeError, match="channels"):
        compare_layers(cnn, model, [torch.randn(1, 5, 9, 8)])
    hooks = [hook for module in (*cnn.modules(), *model.modules()) for hook in module._forward_hooks]
    assert hooks == []
    assert not model._forward_pre_hooks


def test_the_bound_is_the_certificate_for_what_was_seen() -> None:
    cnn, x = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)).eval(), torch.randn(2, 3, 9, 8)
    model = convert_model(cnn, alpha=4.0).model
    layer = model[0]  # type: ignore[index]
    assert isinstance(layer, SelfAttention2d)
    assert compare_layers(cnn, model, [x])[0].bound == certify_data(layer, [x]).bound


@pytest.mark.parametrize(
    ("dtype", "engine"), [(torch.bfloat16, "auto"), (torch.float16, "literal"), (torch.bfloat16, "sdpa")]
)
def test_under_autocast_each_layer_stays_within_the_certificate_of_the_rounded_layer_on_the_rounded_input(
    dtype: torch.dtype, engine: str
) -> None:
    cnn = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3)).eval()
    model, x = convert_model(cnn).model.eval(), torch.randn(4, 8, 12, 12)
    set_engine(model, engine)
    with torch.autocast("cpu", dtype):
        layers = compare_layers(cnn, model, x.split(2))
    for layer in layers:
        assert layer.own <= layer.bound
    first = copy.deepcopy(model[0]).to(dtype)  # type: ignore[index]
    assert layers[0].bound == certify_data(first, [x.to(dtype)], engine=engine).bound


@pytest.mark.parametrize("name", ["input", "bias"])
def test_a_layer_s_bound_is_not_a_number_where_autocast_overflows(name: str) -> None:
    conv, x = nn.Conv2d(3, 4, 3), torch.ones(1, 3, 5, 5)
    tensor = x if name == "input" else conv.get_parameter(name)
    with torch.no_grad():
        tensor.view(-1)[0] = 1e5  # float16 ends at 65504
    cnn = nn.Sequential(conv).eval()
    model = convert_model(cnn).model
    with torch.autocast("cpu", torch.float16):
        (found,) = compare_layers(cnn, model, [x])
    assert math.isnan(found.bound)
    assert compare_layers(cnn, model, [x])[0].bound < 1


def test_what_a_network_writes_into_its_input_or_a_layer_s_output_does_not_change_what_is_compared() -> None:
    x, conv = torch.randn(2, 2, 4, 5), nn.Conv2d(2, 3, 2)
    before = compared(lambda conv, x: conv(x.clone().mul_(100)), x, conv=conv)
    assert compared(lambda conv, x: conv(x.mul_(100)), x.clone(), conv=conv) == before
    assert compared(lambda conv, x: conv(x.mul_(100)).mul_(100), x.clone(), conv=conv) == before
    assert 0 < before.own == before.total
    assert before.inherited == 0


def test_a_layer_that_computes_with_parameters_that_are_not_its_own_now_is_not_compared() -> None:
    with pytest.raises(ConversionError, match="conv was called with other parameters than its own"):
        compared(
            lambda conv, x: conv(x) + functional_call(conv, {"bias": 100 * conv.bias}, (x,)), torch.rand(2, 2, 4, 5)
        )


def test_a_batch_without_images_is_none() -> None:
    x, conv = torch.rand(2, 2, 4, 5), nn.Conv2d(2, 3, 2)
    found = compared(lambda conv, x: conv(x), x[:0], x, x[:0], conv=conv)
    assert found == compared(lambda conv, x: conv(x), x, conv=conv)
    with pytest.raises(ConversionError, match="no image came to conv"):
        compared(lambda conv, x: conv(x), x[:0], conv=conv)
    layer = convert_model(nn.Conv2d(2, 3, 2)).model
    assert isinstance(layer, SelfAttention2d)
    with pytest.raises(ConversionError, match="a batch holds no image"):
        measure_input(layer, [x, x[:0]])
