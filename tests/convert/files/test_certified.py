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
from conv2attn.convert.files.report import ALONE, CERTIFIED_RANGE, CertifiedLayer, CertifiedReport
from conv2attn.convert.model.report import Report
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


def test_inputs_are_from_minus_one_to_one_unless_told_otherwise() -> None:
    assert CERTIFIED_RANGE == (-1.0, 1.0)
    layer = attention()
    assert first(layer) == first(layer, input_range=(-1.0, 1.0))
    assert first(layer).certificate != first(layer, input_range=RANGE).certificate


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


def test_progress_is_told_of_each_layer() -> None:
    model, report = convert_model(convs())
    told: list[int] = []
    CertifiedReport.of(model, report, progress=told.append)
    assert told == [1, 1]
    CertifiedReport.of(model, report)


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


def test_a_certificate_is_in_words_and_plain_data() -> None:
    bound = first(attention())
    assert bound.certificate is not None
    assert bound.in_words == bound.certificate.in_words
    assert bound.to_json() == {
        "certificate": bound.certificate.to_json(),
        "uncertified": None,
        "dtype": "float32",
    }
    without = CertifiedLayer(None, "a reason")
    assert without.to_json() == {"certificate": None, "uncertified": "a reason", "dtype": None}


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


def test_notes_go_to_the_layers_that_they_are_of() -> None:
    model, report = convert_model(convs())
    certified = CertifiedReport.of(model, report)
    noted = certified.noted({"2": "a note"})
    assert [layer.note for layer in noted.report.layers] == [None, "a note"]
    assert noted.report == report.noted({"2": "a note"})
    assert (noted.bounds, noted.network, noted.input_range) == (certified.bounds, certified.network, (-1.0, 1.0))


def test_nothing_is_recorded_for_gradients() -> None:
    layer = attention().requires_grad_()
    assert first(layer).certificate == certify(layer.requires_grad_(False), input_range=CERTIFIED_RANGE)
