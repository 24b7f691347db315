"""What report.json says of each layer: its certificate, or why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify, certify_network, convert_model
from conv2attn.convert.agreement import report as certified_report
from conv2attn.convert.agreement.layers import compare_layers
from conv2attn.convert.agreement.report import CERTIFIED_RANGE, Summary, certify_report
from conv2attn.convert.arguments import Size
from conv2attn.convert.certificate.distance import distance_from_convolution
from conv2attn.convert.certificate.layer import number
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.network.report import Report
from tests.positions import move_center

RANGE = (-2.0, 3.0)


def convs(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 1, 1, bias=False)).to(dtype).eval()


def attention(alpha: float | None = 3.0) -> SelfAttention:
    torch.manual_seed(0)
    return attention_from_conv(nn.Conv2d(1, 2, 3), alpha=alpha)


def moved() -> SelfAttention:
    layer = attention()
    move_center(layer, 0, 0.5)
    return layer


def test_each_layer_has_its_certificate_precision_for_the_range_that_is_given() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model, report = convert_model(convs(dtype), alpha=4.0)
        certified = certify_report(model, report, input_range=RANGE)
        assert certified.input_range == RANGE
        assert [replace(each, certificate=None, dtype=None) for each in certified.layers] == list(report.layers)
        for layer in certified.layers:
            found = model.get_submodule(layer.name)
            assert isinstance(found, SelfAttention)
            assert layer.certificate == certify(found, input_range=RANGE)
            assert (layer.uncertified, layer.dtype) == (None, str(dtype).removeprefix("torch."))


def test_a_network_that_is_written_under_autocast_is_certified_as_it_is_written() -> None:
    model, report = convert_model(convs(), alpha=4.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = certify_report(model, report)
    assert found == certify_report(model, report)
    assert all(layer.certificate is not None for layer in found.layers)
    assert found.network is not None
    assert found.network.bound is not None


def test_the_network_is_certified_for_the_same_images_unless_it_is_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    model, report = convert_model(convs(), alpha=4.0)
    certified = certify_report(model, report, input_range=RANGE, size=(9, 8))
    expected = certify_network(model, input_range=RANGE, size=(9, 8))
    assert certified.network is not None
    assert certified.network.to_json() | {"outputs": None} == expected.to_json() | {"outputs": None}
    assert certified.network.size == (9, 8)
    assert certify_report(model, report).network == certify_network(model, input_range=(-1.0, 1.0))
    monkeypatch.setattr(certified_report, "MOST_LAYERS", 1)
    certified = certify_report(model, report)
    assert certified.network is None
    assert all(layer.certificate is not None for layer in certified.layers)


def test_a_layer_that_is_no_convolution_says_how_far_from_one_it_is() -> None:
    layer = moved()
    for low, high in (CERTIFIED_RANGE, RANGE):
        far = distance_from_convolution(layer, input_range=(low, high)).bound
        told = f"no longer a convolution, at most {far:.3g} from the convolution of its weights for inputs on "
        (found,) = certify_report(layer, Report.of(layer), input_range=(low, high)).layers
        assert (found.certificate, found.bound_in_words) == (None, f"{told}[{low:g}, {high:g}]")


@pytest.mark.parametrize(
    ("make", "value", "words"),
    [
        (attention, math.nan, "NaN or infinite weights"),
        (attention, math.inf, "NaN or infinite weights"),
        (moved, math.inf, "its heads at the kernel's taps"),  # no distance is known
        (lambda: attention(alpha=1e-7), 1.0, "no finite bound"),
        (lambda: attention().to("meta"), 1.0, "on the meta device"),
    ],
)
def test_a_layer_without_a_certificate_says_why(make: Callable[[], SelfAttention], value: float, words: str) -> None:
    layer = make()
    report = Report.of(layer if not layer.weight.is_meta else attention())
    with torch.no_grad():
        layer.weight[0] = value
    certified = certify_report(layer, report)
    (found,) = certified.layers
    assert found.certificate is None
    assert words in str(found.uncertified)
    assert found.bound_in_words == found.uncertified
    json.dumps(certified.to_json(), allow_nan=False)


def test_a_report_is_plain_data_with_what_was_certified_measured_and_left() -> None:
    cnn = convs()
    model, report = convert_model(cnn, alpha=4.0, filter_fn=lambda _, name: name != "2")
    certified = certify_report(model, report, input_range=RANGE)
    assert certified.network is not None
    (layer,), (skipped,) = certified.layers, report.skipped
    assert layer.certificate is not None
    measured = compare_layers(cnn, model, [torch.randn(1, 1, 5, 5)])
    data = json.loads(json.dumps(replace(certified, comparison=measured).to_json()))
    assert data["certified_range"] == [-2.0, 3.0]
    assert data["layers"][0]["certificate"] == layer.certificate.to_json()
    assert data["layers"][0]["literal"] == certified.summary.samples["0"].to_json()
    assert data["network"] == certified.network.to_json()
    assert data["comparison"] == [one.to_json() for one in measured]
    assert data["skipped"] == [{"name": "2", "reason": skipped.reason}]


# What is said first: layers and heads, literal attention beside its bound, and whether the program is the CNN's


SIZE = Size(70, 80)


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, (3, 2), stride=2)).eval()


def summarised(model: nn.Module, size: Size = SIZE) -> Summary:
    return Summary.of(model, Report.of(model).layers, size=size)


@pytest.mark.parametrize(("alpha", "first"), [(None, "Same bits as the CNN: "), (6.0, "Soft attention: ")])
def test_attention_is_said_first_with_its_literal_difference_and_bound(alpha: float | None, first: str) -> None:
    found = summarised(convert_model(cnn(), alpha=alpha).model)
    samples = found.samples.values()
    assert (found.layers, found.heads, list(found.samples)) == (2, 15, ["0", "2"])
    assert all(one.difference <= one.bound and one.queries == 64 for one in samples)
    assert found.in_words.startswith(first)
    assert "2 layers, 15 heads" in found.in_words
    for number_of in (max(one.difference for one in samples), max(one.bound for one in samples)):
        assert f" {number(number_of)}" in found.in_words
    assert found.to_json()["in_words"] == found.in_words
    assert found.is_same_program is (alpha is None)


def test_soft_attention_says_first_how_far_outputs_are() -> None:
    soft = convert_model(cnn(), alpha=1.0).model
    found = summarised(soft)
    assert found.image is not None
    with torch.no_grad():
        expected = cnn()(found.image)
        difference = float((soft(found.image) - expected).abs().max())
    assert found.apart == (difference, float(expected.abs().max()))
    told = f"reach {number(float(expected.abs().max()))}, by up to {number(difference)}; alpha_for"
    assert told in found.in_words
    assert summarised(convert_model(cnn()).model).apart is None


class DecoderFirst(nn.Module):
    """Holds its second convolution first."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder, self.encoder = nn.Conv2d(6, 2, 3), nn.Conv2d(1, 6, (2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]


def test_the_drawn_image_has_the_channels_and_the_size_that_the_network_takes_if_it_takes_one() -> None:
    found = summarised(convert_model(DecoderFirst().eval()).model)
    assert found.image is not None
    assert (found.image.shape, len(found.samples), found.is_same_program) == ((1, 1, 64, 64), 2, True)
    fixed = nn.Sequential(nn.Conv2d(3, 4, 2, stride=10), nn.Flatten(), nn.Linear(4 * 7 * 8, 2))
    assert list(summarised(convert_model(fixed).model).samples) == ["0"]
    takes_none = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Linear(7, 2))
    assert summarised(convert_model(takes_none).model).in_words == "1 layer, 1 head."


def test_layers_without_their_network_each_see_an_image_and_are_no_program() -> None:
    root = Layers()
    root.add_module("one", nn.Conv2d(5, 2, 3))
    root.add_module("two", nn.Conv1d(70, 2, 3))
    model, _ = convert_model(root)
    found = summarised(model)
    assert (list(found.samples), found.is_same_program) == (["one", "two"], False)
