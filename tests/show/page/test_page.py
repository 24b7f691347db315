"""The page holds what the library computes, as data and never as markup, and stays small."""

from __future__ import annotations

import base64
import html
import json
import re
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify, convert_model
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.tail import tail_fraction
from conv2attn.convert.certificate.distance import distance_from_convolution
from conv2attn.convert.certificate.network.images import certify_shown
from conv2attn.convert.examples.images import drawn_image
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.network.report import Report
from conv2attn.proofs.campaign.strategies import convolutions_with_input
from conv2attn.show.page.data import BUDGET, MOST_CHANNELS, channels_data, first_channels
from conv2attn.show.page.write import make_page
from conv2attn.show.pictures.scene import Scene
from conv2attn.show.text import scientific
from tests.positions import move_center

LIMIT = 3_000_000  # bytes of a ResNet-18's page


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def data_of(page: str) -> dict[str, Any]:
    """The data that a page holds."""
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text, parse_constant=_refuse)
    return data


def decoded(numbers: dict[str, str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.frombuffer(base64.b64decode(numbers["data"]), f"<{numbers['type']}").astype(np.float64)


def page_of(network: nn.Module, **options: Any) -> str:
    model, report = convert_model(network.eval())
    return make_page(model, report, title="A network", **options).text


def scene_of(conv: nn.Conv2d, x: Tensor) -> Scene:
    return Scene("conv", attention_from_conv(conv), x[:1], (0, 0))


def small() -> nn.Module:
    """A network with a strided, a depthwise and a plain convolution."""
    convolutions = nn.Conv2d(3, 4, 3, stride=4, padding=1), nn.Conv2d(4, 4, (3, 2), groups=4), nn.Conv2d(4, 2, 1)
    first, second, third = convolutions
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.AdaptiveAvgPool2d(1), nn.Flatten())


# The numbers


@given(convolutions_with_input(dtype=torch.float64), st.integers(1, MOST_CHANNELS))
def test_the_page_s_values_at_the_taps_add_up_to_the_convolution(case: tuple[nn.Conv2d, Tensor], count: int) -> None:
    conv, x = case
    scene = scene_of(conv, x)
    data = channels_data(scene, count)
    spec, query = scene.layer.spec, scene.mark
    shape = (-1, *spec.padded_size(scene.size))
    for channel in data["channels"]:
        planes = decoded(data["planes"][channel["planes"]]).reshape(shape)
        values = planes if channel["projection"] is None else np.tensordot(channel["projection"], planes, 1)
        taps = enumerate(spec.tap_offsets)
        here = sum(values[head, query[0] + row, query[1] + column] for head, (row, column) in taps)
        expected = decoded(channel["convolution"])[0]
        assert abs(here + channel["bias"] - expected) <= channel["rounding"]


@given(convolutions_with_input(), st.sampled_from([0.25, 1.0, 3.0, 200.0]))
def test_the_page_s_bound_is_that_of_the_theorem_and_the_rounding_of_one_hot_attention(
    case: tuple[nn.Conv2d, Tensor], alpha: float
) -> None:
    conv, x = case
    scene = scene_of(conv, x)
    (channel,) = channels_data(scene, 1)["channels"]
    layer, part = first_channels(scene.layer, x[:1], 1)
    soft = SelfAttention2d(layer.spec, weight=layer.weight, bias=layer.bias, alpha=alpha)
    ranges = part.double().transpose(0, 1).flatten(1)
    certificate = certify(soft, input_range=(ranges.amin(1), ranges.amax(1)))
    one_tap = layer.num_heads == 1  # with more, the certificate also tries how heads make up for each other
    assert certificate.tail <= tail_fraction(alpha) * channel["scale"] * (1 + 1e-8)  # rounded up by 2^-30
    assert not one_tap or tail_fraction(alpha) * channel["scale"] == pytest.approx(certificate.tail, rel=1e-5)
    assert channel["rounding"] <= certificate.bound * (1 + 1e-8)


def test_the_page_s_errors_are_below_their_bounds() -> None:
    for layer in data_of(page_of(small()))["layers"]:
        assert layer["difference"] <= layer["bound"]
        assert all(channel["rounding"] is not None for channel in layer["channels"])


def test_the_page_says_what_is_proved_of_its_run_and_what_would_take_too_long() -> None:
    model, report = convert_model(small().eval())
    (certificate,) = certify_shown(model, drawn_image(3)).images
    words = data_of(make_page(model, report, title="").text)["on_image"]
    assert f"within {scientific(certificate.error)} of those of exact arithmetic" in words
    assert f"differ by at most {scientific(certificate.bound)} in the largest output" in words
    wide = data_of(page_of(nn.Sequential(nn.Conv2d(3, 300, 1)), image=drawn_image(3, Size(64, 64))))
    assert "not proved here" in wide["on_image"]


# What the page holds


def test_the_page_names_every_layer_and_what_was_left() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    model, report = convert_model(network, filter_fn=lambda _, name: name == "0")
    page = make_page(model, report, title="A network").text
    assert [layer["names"] for layer in data_of(page)["layers"]] == [["0"]]
    assert "<dt>2</dt><dd>not selected</dd>" in page


def test_names_are_text() -> None:
    name = "<script>alert(1)</script>&amp;"
    page = make_page(*convert_model(_named(name)), title=name).text
    data = data_of(page)
    assert data["title"] == name
    assert data["layers"][0]["names"] == [name]
    assert html.escape(name) in page
    assert "<script>alert" not in page


def _named(name: str) -> nn.Module:
    module = nn.Conv2d(3, 1, 3)
    return nn.ModuleDict({name: module})


def test_the_page_asks_for_nothing() -> None:
    page = page_of(small())
    assert re.findall(r'\b(?:src|href)="([^"]*)"', page) == ["data:,"]
    style = "".join(
        re.findall(r"<style>(.*?)</style>", make_page(*convert_model(_named("x")), title="").text, re.DOTALL)
    )
    assert "url(" not in style
    assert "@import" not in style


def test_a_network_that_does_not_run_is_shown_without_values() -> None:
    data = data_of(page_of(_named("alone")))
    (layer,) = data["layers"]
    assert "does not run on an image of 3x64x64" in data["trouble"]
    assert (layer["seen"], "channels" in layer, layer["padded_size"]) == (False, False, [32, 32])


def test_a_network_that_takes_too_long_is_shown_without_values() -> None:
    conv = nn.Conv2d(3, 4, 3, padding=1)
    work = conv.weight.numel() * 64 * 64
    assert data_of(page_of(nn.Sequential(conv), limit=work))["trouble"] is None
    data = data_of(page_of(nn.Sequential(conv), limit=work - 1))
    assert data["trouble"] == "the network takes too much time or memory on an image of this size"
    assert "channels" not in data["layers"][0]


def layers_alone(**convolutions: nn.Conv2d) -> Layers:
    """Converted layers without a network around them."""
    tree = Layers()
    for name, convolution in convolutions.items():
        tree.add_module(name, convolution)
    convert_model(tree, inplace=True)
    return tree


def drawn(model: nn.Module, side: int = 64, **options: Any) -> dict[str, Any]:
    """The data in the page of a converted network, before an image of so many pixels a side."""
    image = drawn_image(3, Size(side, side))
    return data_of(make_page(model, Report.of(model), title="", image=image, **options).text)


def test_a_layer_that_does_not_fit_its_image_leaves_the_others_their_values() -> None:
    model = layers_alone(
        first=nn.Conv2d(2, 2, 3),
        large=nn.Conv2d(1, 1, 2, dilation=100),
        padded=nn.Conv2d(1, 1, 1, padding=8192),
        last=nn.Conv2d(1, 1, 1),
    )
    data = drawn(model)
    first, large, padded, last = data["layers"]
    assert data["trouble"] is None
    assert [layer["seen"] for layer in (first, large, padded, last)] == [True, False, False, True]
    assert ["channels" in layer for layer in (first, large, padded, last)] == [True, False, False, True]
    assert large["note"].startswith("not computed: a kernel that spans 101x101 pixels does not fit")
    assert large["padded_size"] == [101, 101]
    assert padded["note"].startswith("not drawn in the page: its padded input")


def test_a_layer_that_is_a_convolution_no_more_says_so_with_its_distance() -> None:
    model = layers_alone(kept=nn.Conv2d(2, 2, 3), moved=nn.Conv2d(2, 2, 3))
    moved = model.get_submodule("moved")
    assert isinstance(moved, SelfAttention2d)
    moved.set_positions(alpha=4)
    move_center(moved, 3, torch.tensor([0.25, 0.0]))
    notes = [layer["note"] for layer in drawn(model, 8)["layers"]]
    far = distance_from_convolution(moved, input_range=(-1, 1)).bound
    assert notes == [
        None,
        "no longer a convolution: the centre of head 3 is at (0.25, -1.0), not at its kernel tap (0, -1), "
        f"at most {far:.3g} from the convolution of its weights for inputs on [-1, 1]",
    ]


def test_a_layer_with_learned_scores_is_listed_and_not_recomputed() -> None:
    model, report = convert_model(nn.Sequential(nn.Conv2d(3, 2, 3)))
    model.get_submodule("0").add_content(2)  # type: ignore[operator]
    (layer,) = data_of(make_page(model, report, title="", image=torch.zeros(1, 3, 8, 8)).text)["layers"]
    assert (layer["positional"], "channels" in layer, layer["bound"]) == (False, False, None)


def test_a_resnet_18_s_page_is_small() -> None:
    page = make_page(*convert_model(_resnet_18()), title="ResNet-18", image=drawn_image(3, Size(224, 224))).text
    assert len(page.encode()) < LIMIT
    assert 4 / 3 * 4 * BUDGET < LIMIT  # base64 of four bytes a number: no network's channels alone exceed it


def _resnet_18() -> nn.Module:
    """The convolutions of a ResNet-18 (arXiv 1512.03385) in the sizes that it sees, without its shortcuts' sums."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers += [nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.Conv2d(channels, channels, 3, 1, 1)]
        before = channels
    return nn.Sequential(*layers)
