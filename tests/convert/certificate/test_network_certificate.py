"""The certificate of a network: what it is of, what it says, and when it says nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    NetworkCertificate,
    SelfAttention,
    attention_from_conv,
    certify_network,
    convert_model,
)
from conv2attn.convert.certificate.propagation import network
from conv2attn.convert.certificate.propagation.interval import Interval
from conv2attn.convert.certificate.propagation.layers import bound_attention
from conv2attn.convert.certificate.propagation.network import LayerBound
from conv2attn.convert.certificate.wording import told
from conv2attn.convert.errors import Problem
from conv2attn.convert.padded import PaddedConv2d
from conv2attn.convert.size import Size

SIZE = (2, 3)


class Small(nn.Module):
    """A network of a function, beside an attention layer of weights 2 and -3 and a counter."""

    def __init__(self, function: Callable[[Any, Tensor], Any], channels: int = 1) -> None:
        super().__init__()
        conv = nn.Conv2d(channels, 2, 1, bias=False)
        with torch.no_grad():
            conv.weight.copy_(torch.tensor([2.0, -3.0]).view(2, 1, 1, 1).expand(2, channels, 1, 1))
        self.attention = attention_from_conv(conv, alpha=3.0)
        self.function = function
        self.register_buffer("count", torch.zeros(1))
        self.own = id(self)

    @property
    def computes(self) -> bool:
        """Whether this is the network itself, and not the copy that is followed without values."""
        return id(self) == self.own

    def forward(self, x: Tensor) -> Any:
        """Applies the function."""
        return self.function(self, x)


def certified(function: Callable[[Any, Tensor], Any], **options: Any) -> NetworkCertificate:
    return certify_network(Small(function).eval(), **{"input_range": (-1, 2), "size": SIZE, **options})


def plain(model: Any, x: Tensor) -> Tensor:
    y: Tensor = model.attention(x)
    return y


def test_the_bound_is_the_largest_error_of_an_output_and_the_layers_are_listed() -> None:
    once, twice = certified(plain), certified(lambda model, x: (model.attention(x) * 2.0, model.attention(x)))
    assert once.size == Size(2, 3)
    assert once.unbounded == ()
    (layer,) = once.layers
    assert once.bound == layer.total > 0
    assert twice.bound == pytest.approx(2 * once.bound, rel=0.5)
    assert twice.bound > once.bound  # type: ignore[operator]
    assert [bound.name for bound in twice.layers] == ["attention"] * 2
    assert once.in_words == told(once.bound, once.outputs)


def test_what_is_known_of_a_layer_is_kept_for_another_number_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def bound(layer: SelfAttention, x: Interval) -> Any:
        asked.append(layer)
        return bound_attention(layer, x)

    monkeypatch.setattr(network, "bound_attention", bound)
    certified(plain)
    assert len(asked) == 1


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_images_have_the_usual_size_of_their_axes_unless_another_is_said(axes: int) -> None:
    convs: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    layer = attention_from_conv(convs[axes](1, 1, 1))
    seen: list[tuple[int, ...]] = []

    class Seen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            seen.append(tuple(x.shape))
            raise ValueError("enough")

    certificate = certify_network(Seen(), input_range=(0, 1))
    assert seen[0][0] == 1
    assert certificate.size == seen[0][2:]
    assert len(certificate.size) == axes
    assert certificate.unbounded[0].reason == (
        f"the network cannot be followed on images of {certificate.size}: it does not run on them: ValueError: enough"
    )
    assert (certificate.bound, certificate.layers, certificate.outputs) == (None, (), None)


def test_the_first_layer_says_how_many_channels_an_image_has() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.attention = nn.Conv2d(3, 2, 1), attention_from_conv(nn.Conv2d(2, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.attention(self.stem(x))
            return y

    assert certify_network(Two(), input_range=([0, 0, 0], [1, 1, 1]), size=SIZE).bound is not None
    with pytest.raises(ConversionError, match="convert it first"):
        certify_network(nn.Conv2d(3, 2, 1), input_range=(0, 1), size=SIZE)
    with pytest.raises(ConversionError, match="convert it first"):
        certify_network(nn.Linear(3, 2), input_range=(0, 1), size=SIZE)


def test_outputs_are_of_one_image_of_each_channel_s_range_and_engines_are_what_they_were() -> None:
    seen: list[Tensor] = []

    def keep(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        if model.computes:
            seen.append(x)
            assert model.attention.engine == "auto"
        return model.attention(x) * 0.0, x

    model = Small(keep, channels=2)
    model.attention.engine = "literal"
    certificate = certify_network(model, input_range=([-1, 10], [1, 10]), size=(5, 7))
    (image,) = seen
    assert image.shape == (1, 2, 5, 7)
    assert -1 <= image[0, 0].min() < 0 < image[0, 0].max() <= 1
    assert set(image[0, 1].flatten().tolist()) == {10}
    assert certificate.outputs == 10
    assert model.attention.engine == "literal"
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(1, 2, 5, 7, generator=generator, dtype=torch.float64)
    assert torch.equal(image[:, 0], (2 * drawn[:, 0] - 1).float())


@pytest.mark.parametrize(
    ("function", "outputs"),
    [
        (lambda model, x: (model.attention(x)[:, :0], model.attention(x) * 0.0), 0.0),
        (lambda model, x: model.attention(x)[:, :0], None),
        (lambda model, x: model.attention(x) if not model.computes else x * math.nan, None),
        (lambda model, x: model.attention(x) if not model.computes else x * math.inf, None),
    ],
)
def test_outputs_are_not_known_where_there_are_none_or_they_are_not_finite(
    function: Callable[[Any, Tensor], Any], outputs: float | None
) -> None:
    assert certified(function).outputs == outputs


@pytest.mark.parametrize("error", [RuntimeError("no memory"), ConversionError("no engine")])
def test_outputs_are_not_known_where_the_network_does_not_run_on_numbers(error: Exception) -> None:
    def fail(model: Any, x: Tensor) -> Tensor:
        if model.computes:
            raise error
        y: Tensor = model.attention(x)
        return y

    certificate = certified(fail)
    assert certificate.outputs is None
    assert certificate.bound is not None


def test_a_network_without_outputs_has_no_bound() -> None:
    certificate = certified(lambda model, x: ())
    assert (certificate.bound, certificate.outputs, certificate.unbounded) == (None, None, ())


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: model.attention(x) * (2.0 if len(x) == 1 else 3.0),
        lambda model, x: model.attention(x) * (2.0 if len(x) > 2 else 3.0),
        lambda model, x: model.attention(x) * (2.0 if len(x) == 3 else 3.0),
        lambda model, x: (model.attention(x),) * len(x),
        lambda model, x: (model.attention(x),) * (4 - len(x)),
        lambda model, x: model.attention(x) if len(x) == 1 else model.attention(x)[:, :1],
    ],
)
def test_what_depends_on_how_many_images_there_are_has_no_bound(function: Callable[[Any, Tensor], Any]) -> None:
    certificate = certified(function)
    assert (certificate.bound, certificate.outputs) == (None, None)
    assert certificate.unbounded == (Problem("", "what it computes depends on how many images it gets"),)


def test_what_depends_on_gradients_being_enabled_has_no_bound() -> None:
    certificate = certified(lambda model, x: model.attention(x) * (3.0 if torch.is_grad_enabled() else 2.0))
    assert (certificate.bound, certificate.outputs) == (None, None)
    assert certificate.unbounded == (Problem("", "what it computes depends on gradients being enabled"),)


@pytest.mark.parametrize(
    "factor",
    [
        lambda layer: 2.0 if isinstance(layer, nn.Conv2d) else 3.0,
        lambda layer: 2.0 if isinstance(layer, SelfAttention) else 3.0,
    ],
)
def test_what_depends_on_its_layers_being_attention_has_no_bound(factor: Callable[[nn.Module], float]) -> None:
    certificate = certified(lambda model, x: model.attention(x) * factor(model.attention))
    assert (certificate.bound, certificate.outputs) == (None, None)
    reason = "what it computes depends on its layers being attention and not convolutions"
    assert certificate.unbounded == (Problem("", reason),)


class Listed(nn.Module):
    """Layers in a list, of which one occurs twice, with a ReLU behind what the network thinks is a convolution."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        padded = PaddedConv2d(ConvSpec(2, 2, (2, 2), padding=((0, 1), (1, 0))))
        shared = nn.Conv2d(2, 2, 1)
        self.parts, self.kind = nn.ModuleList([nn.Conv2d(1, 2, 3, padding=1), shared, padded, shared]), kind

    def forward(self, x: Tensor) -> Tensor:
        """Applies them."""
        for part in self.parts:
            x = part(x).relu() if isinstance(part, self.kind) else part(x)
        return x


def test_a_relu_behind_every_convolution_has_a_bound_where_attention_has_it_too() -> None:
    for kind, has_bound in ((nn.Conv2d, False), (nn.Module, True), (nn.Linear, True)):
        model = convert_model(Listed(kind).eval()).model
        assert (certify_network(model, input_range=(-1, 2), size=SIZE).bound is not None) == has_bound


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_trained_and_watched_while_it_is_trained_has_the_same_bound(trained: bool) -> None:
    model = Small(lambda model, x: model.attention(x).relu_()).eval().requires_grad_(trained)
    for module in model.modules():
        module.register_full_backward_hook(lambda *_: None)
        module.register_full_backward_pre_hook(lambda *_: None)
    certificate = certify_network(model, input_range=(-1, 2), size=SIZE)
    assert certificate.bound == certified(plain).bound


def test_a_layer_on_another_dtype_leaves_no_bound_even_if_its_output_is_not_used() -> None:
    certificate = certified(lambda model, x: (model.attention(x.double()), model.attention(x))[1])
    assert certificate.bound is None
    assert "its input is of torch.float64, the layer of torch.float32" in [p.reason for p in certificate.unbounded]


def test_a_change_that_only_several_images_make_leaves_no_bound() -> None:
    def change(model: Any, x: Tensor) -> Tensor:
        if len(x) > 1:
            model.count.add_(1.0)
        y: Tensor = model.attention(x)
        return y

    certificate = certified(change)
    assert certificate.bound is None
    assert certificate.unbounded == (Problem("add_", "it changes a parameter, a buffer or a constant while it runs"),)


def test_a_network_that_changes_itself_has_no_bound_and_is_told_once_for_each_place() -> None:
    def change(model: Any, x: Tensor) -> Tensor:
        model.count.add_(1.0)
        model.count.add_(1.0)
        y: Tensor = model.attention(x)
        return y

    certificate = certified(change)
    assert (certificate.bound, certificate.outputs) == (None, None)
    assert certificate.unbounded == (Problem("add_", "it changes a parameter, a buffer or a constant while it runs"),)


def test_a_change_is_not_told_beside_why_the_same_place_has_no_bound() -> None:
    model = Small(lambda model, x: model.attention(model.norm(x)))
    model.norm = nn.BatchNorm2d(1)
    certificate = certify_network(model, input_range=(-1, 2), size=SIZE)
    assert [(problem.name, problem.reason) for problem in certificate.unbounded] == [
        ("norm", "batch norm takes its statistics from the batch"),
        ("attention", "the values of its input are not bounded"),
    ]


def test_a_hook_stands_in_the_way_of_any_bound() -> None:
    model = Small(plain).eval()
    model.register_forward_hook(lambda *_: None)
    certificate = certify_network(model, input_range=(-1, 2), size=SIZE)
    assert (certificate.bound, certificate.layers, len(certificate.unbounded)) == (None, (), 1)


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
