"""What report.json says of each layer: its certificate, or why there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify, certify_network, convert_model
from conv2attn.convert.attention.layer import SelfAttention
from conv2attn.convert.bounds import tail
from conv2attn.convert.certificate.comparison import compare_layers
from conv2attn.convert.certificate.distance import distance_from_convolution
from conv2attn.convert.files import report as certified_report
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.files.report import ALONE, CERTIFIED_RANGE, CertifiedLayer, CertifiedReport
from conv2attn.convert.files.summary import Summary
from conv2attn.convert.model.report import Report
from conv2attn.convert.size import Size
from tests.positions import move_center

RANGE = (-2.0, 3.0)


def convs(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 1, 1, bias=False)).to(dtype).eval()


def first(layer: nn.Module, **given: Any) -> CertifiedLayer:
    """What is known of the only layer."""
    (bound,) = CertifiedReport.of(layer, Report.of(layer), **given).bounds
    return bound


def attention(alpha: float | None = 3.0) -> SelfAttention:
    torch.manual_seed(0)
    return attention_from_conv(nn.Conv2d(1, 2, 3), alpha=alpha)


def test_each_layer_has_its_certificate_precision_for_the_range_that_is_given() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model, report = convert_model(convs(dtype), alpha=4.0)
        certified = CertifiedReport.of(model, report, input_range=RANGE)
        assert certified.input_range == RANGE
        assert certified.report == report
        for layer, bound in zip(report.layers, certified.bounds, strict=True):
            found = model.get_submodule(layer.name)
            assert isinstance(found, SelfAttention)
            assert bound.certificate == certify(found, input_range=RANGE)
            assert (bound.reason, bound.dtype) == (None, str(dtype).removeprefix("torch."))


def test_a_network_that_is_written_under_autocast_is_certified_as_it_is_written() -> None:
    model, report = convert_model(convs(), alpha=4.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = CertifiedReport.of(model, report)
    assert found == CertifiedReport.of(model, report)
    assert all(bound.certificate is not None for bound in found.bounds)
    assert found.network is not None
    assert found.network.bound is not None


def test_the_network_is_certified_for_the_same_images() -> None:
    model, report = convert_model(convs(), alpha=4.0)
    certified = CertifiedReport.of(model, report, input_range=RANGE, size=(9, 8))
    expected = certify_network(model, input_range=RANGE, size=(9, 8))
    assert certified.network is not None
    assert certified.network.to_json() | {"outputs": None} == expected.to_json() | {"outputs": None}
    assert certified.network.size == (9, 8)
    assert CertifiedReport.of(model, report).network == certify_network(model, input_range=(-1.0, 1.0))


def test_a_deep_network_is_not_bounded_for_every_image(monkeypatch: pytest.MonkeyPatch) -> None:
    model, report = convert_model(convs())
    monkeypatch.setattr(certified_report, "MOST_LAYERS", 1)
    certified = CertifiedReport.of(model, report)
    assert certified.network is None
    assert certified.to_json()["network"] is None
    assert all(bound.certificate is not None for bound in certified.bounds)


def test_a_layer_that_is_no_convolution_says_how_far_from_one_it_is() -> None:
    layer = attention()
    with torch.no_grad():
        move_center(layer, 0, 0.5)
    for limits in (CERTIFIED_RANGE, RANGE):
        far = distance_from_convolution(layer, input_range=limits).bound
        told = (
            f"no longer a convolution, at most {far:.3g} from the convolution of its weights for inputs on "
            f"[{limits[0]:g}, {limits[1]:g}]"
        )
        assert first(layer, input_range=limits) == CertifiedLayer(None, told)
        assert first(layer, input_range=limits).in_words == told


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_where_no_distance_is_known_the_certificate_s_own_reason_is_told(value: float) -> None:
    moved, still = attention(), attention()
    with torch.no_grad():
        move_center(moved, 0, 0.5)
        for layer in (moved, still):
            layer.weight[0] = value
    assert first(still).reason == "nothing is certified for a layer with NaN or infinite weights"
    told = (
        "only a layer with quadratic scores alone (or content behind a closed gate) and its heads at the kernel's taps "
        "is certified"
    )
    assert first(moved).reason == told


def test_a_layer_without_values_says_so() -> None:
    layer = attention()
    report = Report.of(layer)
    (bound,) = CertifiedReport.of(layer.to("meta"), report).bounds
    assert bound.reason == "the layer has no values, as on the meta device"


def test_a_bound_that_is_not_finite_is_none() -> None:
    told = "no finite bound is known for these weights and this alpha"
    assert first(attention(alpha=1e-7)) == CertifiedLayer(None, told)
    assert first(attention(alpha=1e-7)).in_words == told


def test_a_report_is_plain_data_with_its_version_and_what_was_measured() -> None:
    cnn = convs()
    model, report = convert_model(cnn, alpha=4.0, filter_fn=lambda _, name: name != "2")
    certified = CertifiedReport.of(model, report, input_range=RANGE)
    assert certified.network is not None
    (bound,), (layer,), (skipped,) = certified.bounds, report.layers, report.skipped
    data = {
        "version": 1,
        "attention": certified.summary.to_json(),
        "certified_range": [-2.0, 3.0],
        "layers": [layer.to_json() | {"literal": certified.summary.samples["0"].to_json()} | bound.to_json()],
        "network": certified.network.to_json(),
        "comparison": None,
        "skipped": [{"name": "2", "reason": skipped.reason}],
    }
    assert certified.to_json() == data
    measured = compare_layers(cnn, model, [torch.randn(1, 1, 5, 5)])
    compared = replace(certified, comparison=measured)
    assert compared.to_json() == data | {"comparison": [one.to_json() for one in measured]}
    with pytest.raises(ValueError, match="shorter"):
        replace(certified, bounds=()).to_json()


def test_layers_whose_soft_heads_are_counted_alone_are_noted_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    content = attention()
    content.add_content(2)
    one = attention_from_conv(nn.Conv2d(2, 1, 1), alpha=3.0)
    model = nn.Sequential(attention(), one, attention(None), content)

    def notes() -> list[str | None]:
        return [layer.note for layer in CertifiedReport.of(model, Report.of(model)).report.layers]

    assert notes() == [None] * 4
    monkeypatch.setattr(tail, "_TABLE", 1)
    assert notes() == [ALONE, None, None, None]


# What is said first: layers and heads, literal attention beside its bound, and whether the program is the CNN's


SIZE = Size(70, 80)


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, (3, 2), stride=2)).eval()


def summarised(model: nn.Module, size: Size = SIZE) -> Summary:
    return Summary.of(model, Report.of(model).layers, size=size)


def test_attention_is_said_first_with_its_literal_difference_and_bound() -> None:
    for alpha in (None, 6.0):
        model, _ = convert_model(cnn(), alpha=alpha)
        found = summarised(model)
        assert (found.layers, found.heads, list(found.samples)) == (2, 15, ["0", "2"])
        assert all(one.difference <= one.bound and one.queries == 64 for one in found.samples.values())
        samples = found.samples.values()
        difference, bound = max(one.difference for one in samples), max(one.bound for one in samples)
        told = f"Literal attention at 64 queries a layer: at most {difference:.1e} apart, bound {bound:.1e}."
        assert found.in_words.startswith(f"2 layers, 15 heads. {told}")
        assert found.to_json()["in_words"] == found.in_words
        assert found.is_same_program is (alpha is None)
        assert found.in_words.endswith("same bits as the CNN.") is (alpha is None)


class DecoderFirst(nn.Module):
    """Holds its second convolution first."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder, self.encoder = nn.Conv2d(6, 2, 3), nn.Conv2d(1, 6, (2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 1, rows, columns] -> [batch, 2, ...]."""
        found: torch.Tensor = self.decoder(self.encoder(x))
        return found


def test_the_drawn_image_has_the_channels_that_the_network_takes() -> None:
    found = summarised(convert_model(DecoderFirst().eval()).model)
    assert found.image is not None
    assert (found.image.shape, len(found.samples), found.is_same_program) == ((1, 1, 64, 64), 2, True)


def test_where_no_image_goes_through_it_says_how_many_layers_and_heads_there_are() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv(x) + other
            return found

    model, _ = convert_model(Odd())
    assert summarised(model).in_words == "1 layer, 1 head."


def test_a_network_of_one_size_sees_an_image_of_that_size() -> None:
    torch.manual_seed(0)
    fixed = nn.Sequential(nn.Conv2d(3, 4, 2, stride=10), nn.Flatten(), nn.Linear(4 * 7 * 8, 2))
    model, _ = convert_model(fixed)
    assert list(summarised(model).samples) == ["0"]


def test_layers_without_their_network_each_see_an_image_and_are_no_program() -> None:
    root = Layers()
    root.add_module("one", nn.Conv2d(5, 2, 3))
    root.add_module("two", nn.Conv1d(70, 2, 3))
    model, _ = convert_model(root)
    found = summarised(model)
    assert (list(found.samples), found.is_same_program) == (["one", "two"], False)
