"""The certificate of a network: what it is of, what it says, and when it says nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    NetworkCertificate,
    attention_from_conv,
    certify,
    certify_network,
    convert_model,
)
from conv2attn.convert.arguments import USUAL_SIZES, Size
from conv2attn.convert.certificate.layer import format_bound
from conv2attn.convert.certificate.network import certificate as certificates
from conv2attn.convert.certificate.network.attention import LayerBound
from conv2attn.convert.certificate.network.interval import Interval
from conv2attn.convert.errors import Problem
from conv2attn.convert.subclasses.padded import PaddedConv2d
from tests.convert.certificate.network.networks import CHANNELS, SIZE, attention, layers_of, random_pair

SEARCHED = 40  # networks of random operations; 2,000 were searched once, with the same function


def certified(function: Callable[[Any, Tensor], Any], **options: Any) -> NetworkCertificate:
    modules = options.pop("modules", {})
    model = attention(function, **modules)
    return certify_network(model, **{"input_range": (-1, 2), "size": (2, 3), **options})


def plain(model: Any, x: Tensor) -> Tensor:
    y: Tensor = model.conv(x)
    return y


def test_the_bound_is_the_largest_error_of_an_output_and_the_layers_are_listed() -> None:
    once, twice = certified(plain), certified(lambda model, x: (model.conv(x) * 2.0, model.conv(x)))
    assert (once.size, once.unbounded) == (Size(2, 3), ())
    (layer,) = once.layers
    assert once.bound == layer.total > 0
    assert layer.own == certify(layers_of(attention(plain))[0], input_range=(-1, 2)).bound
    assert (layer.low, layer.high, layer.inherited) == (-1, 2, 0)
    assert twice.bound == pytest.approx(2 * layer.total, rel=1e-3)
    assert [bound.name for bound in twice.layers] == ["conv"] * 2
    assert once.in_words == format_bound(once.bound, once.outputs)


def excess(seed: int) -> float:
    """By how much the outputs of a random network and its attention exceed the bound, over images of either sign."""
    cnn, model, dtype = random_pair(seed)
    low, high = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))[seed % 3]
    certificate = certify_network(model, input_range=(low, high), size=SIZE)
    if certificate.bound is None:
        return -math.inf
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(6, CHANNELS, *SIZE, generator=generator, dtype=torch.float64) * (high - low) + low
    images[3:] = torch.where(images[3:] > (low + high) / 2, high, low)
    worst = -math.inf
    for image in images.to(dtype).clamp(low, high).split(1):
        with torch.no_grad():
            computed = (network(image).double() for network in (cnn, model))
            worst = max(worst, float((next(computed) - next(computed)).abs().max()) - certificate.bound)
    return worst


@pytest.mark.parametrize("first", range(0, SEARCHED, 10))
def test_networks_stay_within_their_bound_and_most_have_one(first: int) -> None:
    found = {seed: excess(seed) for seed in range(first, first + 10)}
    assert max(found.values()) <= 0, found
    assert sum(map(math.isfinite, found.values())) >= 6


@pytest.mark.parametrize(
    ("alpha", "conv"),
    [
        (2.0, nn.Conv2d(2, 4, (2, 3), stride=(1, 2), dilation=(2, 1), padding=1, groups=2, padding_mode="circular")),
        (None, nn.Conv2d(2, 3, 4, padding="same", padding_mode="reflect")),
        (2.0, PaddedConv2d(ConvSpec(2, 3, (2, 3), padding=((0, 1), (2, 0))))),
        (None, nn.Conv3d(2, 3, (1, 2, 3), padding=1)),
        (None, nn.ConvTranspose1d(2, 3, 4, stride=3, output_padding=1)),
        (2.0, nn.ConvTranspose1d(2, 3, 3, dilation=3, output_padding=2)),
        (2.0, nn.ConvTranspose2d(2, 4, (2, 3), stride=2, padding=(0, 1), groups=2)),
    ],
    ids=str,
)
def test_a_layer_of_any_geometry_has_its_own_certificate_as_the_network_s(conv: Any, alpha: float | None) -> None:
    layer = attention_from_conv(conv, alpha=alpha)
    size = (7, 6, 5)[: layer.spec.axes]
    found, own = certify_network(layer, input_range=(-1, 3), size=size), certify(layer, input_range=(-1, 3))
    assert found.unbounded == ()
    assert found.bound is not None
    # Where taps move apart, a pixel reads one phase of them. Of p phases the largest has at least a p-th of the weight,
    # and perhaps as few of the sum's roundings.
    fewer = math.prod(layer.spec.stride) if layer.spec.transposed else 1
    assert own.bound / (2 * fewer**2) < found.bound <= own.bound * (1 + 1e-6)
    x = torch.rand(1, 2, *size) * 4 - 1
    with torch.no_grad():
        assert float((layer(x) - conv(x)).abs().max()) <= found.bound


def test_a_transposed_layer_may_be_asked_for_an_output_of_another_size() -> None:
    conv = nn.ConvTranspose2d(1, 2, 3, stride=2)
    model = attention(lambda model, x: model.up(x, output_size=(8, 9)), up=conv)
    found = certify_network(model, input_range=(-1, 2), size=(3, 4))
    assert found.unbounded == ()
    x = torch.rand(1, 1, 3, 4)
    with torch.no_grad():
        apart = float((model(x) - conv(x, output_size=(8, 9))).abs().max())
    assert found.bound is not None
    assert apart <= found.bound


def test_what_a_layer_inherits_is_its_kernel_s_absolute_sum_times_the_error() -> None:
    two = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 3, 3, groups=1)).eval()
    model = convert_model(two, alpha=2.0).model
    first, second = certify_network(model, input_range=(-1, 1), size=(9, 8)).layers
    conv: Any = two[1]
    largest = float(conv.weight.detach().abs().flatten(1).sum(1).max())
    assert second.inherited == pytest.approx(first.total * largest, rel=0.2)
    assert second.inherited < second.total <= (second.own + second.inherited) * (1 + 1e-6)


def test_images_have_the_usual_size_of_their_axes_unless_another_is_said() -> None:
    layer = attention_from_conv(nn.Conv1d(1, 1, 1))
    assert certify_network(layer, input_range=(0, 1)).size == USUAL_SIZES[1]
    assert certify_network(layer, input_range=(0, 1), size=(3,)).size == (3,)


def test_only_a_network_with_attention_is_certified() -> None:
    for model in (nn.Conv2d(3, 2, 1), nn.Linear(3, 2)):
        with pytest.raises(ConversionError, match="convert it first"):
            certify_network(model, input_range=(0, 1), size=(2, 3))


def test_the_first_layer_says_how_many_channels_an_image_has() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), attention_from_conv(nn.Conv2d(2, 1, 1)))
    assert certify_network(model, input_range=([0, 0, 0], [1, 1, 1]), size=(2, 3)).bound is not None


def test_outputs_are_of_one_image_drawn_from_each_channel_s_range_and_engines_are_what_they_were() -> None:
    model = nn.Sequential(attention_from_conv(nn.Conv2d(2, 1, 1, bias=False)))
    layer: Any = model[0]
    layer.engine = "literal"
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.0, 3.0]).view(1, 2, 1, 1))
    certificate = certify_network(model, input_range=([-1, 10], [1, 10]), size=(5, 7))
    assert certificate.outputs == 30
    assert layer.engine == "literal"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda model, x: model.conv(x).erfinv(), "no bound is known for erfinv"),
        (lambda model, x: model.conv(x) + torch.rand(1), "rand draws random numbers"),
        (lambda model, x: model.conv(x) + model.count.add_(1.0), "the network changes count while it runs"),
        (lambda model, x: model.conv(x)[x.sum().int()], "its run reads values that depend on the image"),
        (
            lambda model, x: model.conv(x) * float(x.sum()),
            "(sum_1 (item))",
        ),
        (lambda model, x: model.conv(x).double() + model.count.double(), None),
        (lambda model, x: model.conv(x.double()), "on images of 2x3: torch cannot record a run of it"),
        (lambda model, x: model.conv(x).half() + 1e30, "finite number|largest number"),
        (lambda model, x: model.conv(model.count.view(1, 1, 1, 1)), "does not depend on the images"),
        (lambda model, x: F.max_pool2d(model.conv(x), 2, stride=1, return_indices=True)[1], "no bound is known"),
        (lambda model, x: model.conv(x) == 0, "gives no floating-point numbers"),
    ],
)
def test_what_has_no_bound_says_why(function: Callable[[Any, Tensor], Any], reason: str | None) -> None:
    certificate = certified(function)
    if reason is None:
        assert certificate.bound is not None
        return
    assert certificate.bound is None
    assert certificate.outputs is None
    told = "; ".join(problem.reason for problem in certificate.unbounded)
    assert any(part in told for part in reason.split("|"))


def test_hooks_of_a_layer_are_operations_of_the_program() -> None:
    once, model = certified(plain), attention(plain)
    layer: Any = layers_of(model)[0]
    layer.register_forward_hook(lambda module, inputs, output: output * 64)
    after = certify_network(model, input_range=(-1, 2), size=(2, 3))
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 8,))
    both = certify_network(model, input_range=(-1, 2), size=(2, 3))
    assert once.bound is not None
    assert after.bound == pytest.approx(64 * once.bound, rel=1e-3)
    assert both.layers[0].low == pytest.approx(-8)


def test_a_layer_with_a_forward_of_its_own_has_no_bound() -> None:
    model = attention(plain)
    layer: Any = layers_of(model)[0]
    own = layer.forward
    layer.forward = lambda x: own(x) * 64
    certificate = certify_network(model, input_range=(-1, 2), size=(2, 3))
    assert certificate.bound is None
    assert "a forward of their own" in certificate.unbounded[0].reason
    x = torch.ones(1, 1, 1, 1)
    assert torch.equal(layer(x), own(x) * 64)  # which it still has


def test_operations_between_layers_are_the_same_in_both_programs() -> None:
    """Nothing differs in front of the first layer, and what is not on the way from a layer does not at all."""
    certificate = certified(lambda model, x: (model.conv(x.sigmoid() * 0.3), (x / 3).tanh() + 1))
    assert certificate.layers[0].inherited == 0
    assert certificate.bound == certificate.layers[0].total


def test_as_data_numbers_that_are_not_finite_are_null() -> None:
    layer = LayerBound("a", -1.0, math.inf, math.nan, 0.0, 2.0)
    written = NetworkCertificate(Size(2, 3), None, (layer,), (Problem("b", "why"),), 4.0).to_json()
    assert json.loads(json.dumps(written, allow_nan=False)) == {
        "size": [2, 3],
        "bound": None,
        "outputs": 4.0,
        "layers": [{"name": "a", "low": -1.0, "high": None, "own": None, "inherited": 0.0, "total": 2.0}],
        "unbounded": [{"name": "b", "reason": "why"}],
    }


@pytest.mark.fault
@pytest.mark.parametrize("name", ["bound_layer", "bound_call"])
def test_an_error_that_is_left_out_is_found_by_the_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted faults: of attention layers, or of the operations between, all but a thousandth of the error is lost."""
    honest = getattr(certificates, name)

    def careless(*args: Any) -> Any:
        given = honest(*args)
        found = list(given) if isinstance(given, tuple | list) else [given]
        found[0] = Interval(found[0].low, found[0].high, found[0].error * 1e-3)
        return found if isinstance(given, tuple | list) else found[0]

    monkeypatch.setattr(certificates, name, careless)
    assert max(excess(seed) for seed in range(SEARCHED)) > 0
