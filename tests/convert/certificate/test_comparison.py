"""Layers compared on images: what a layer does by itself, and what it inherits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import (
    ConversionError,
    SelfAttention2d,
    certify,
    certify_data,
    compare_layers,
    convert_model,
    save_converted,
)
from conv2attn.convert.files.certified import CertifiedReport
from conv2attn.convert.files.writing.ownership import REPORT
from tests.small_models import SMALL_MODELS, Composite, composite_input


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


def test_a_layer_without_a_difference_of_its_own_may_inherit_one() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1, dtype=torch.float32)).eval()
    model = convert_model(cnn, filter_fn=lambda _, name: name == "0", alpha=2.0).model
    model = convert_model(model).model
    first, second = compare_layers(cnn, model, [torch.randn(2, 3, 8, 9)])
    assert first.own == first.total > 0
    assert second.own < 1e-5 < second.inherited


def test_calls_of_a_shared_layer_are_compared_one_by_one() -> None:
    cnn = Composite().eval()
    model = convert_model(cnn, alpha=3.0).model
    shared = compare_layers(cnn, model, [composite_input()])[1]
    assert shared.name == "blocks.0"
    assert 0 < shared.own <= shared.bound
    assert shared.inherited > 0


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


def test_networks_that_do_not_belong_together_and_no_images_are_refused() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    model = convert_model(cnn).model
    with pytest.raises(ConversionError, match="no layer 0"):
        compare_layers(nn.Conv2d(3, 4, 3), model, [])
    with pytest.raises(ConversionError, match="no image came to 0"):
        compare_layers(cnn, model, [])


def test_the_bound_is_the_certificate_for_what_was_seen() -> None:
    cnn, x = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)).eval(), torch.randn(2, 3, 9, 8)
    model = convert_model(cnn, alpha=4.0).model
    layer = model[0]  # type: ignore[index]
    assert isinstance(layer, SelfAttention2d)
    assert compare_layers(cnn, model, [x])[0].bound == certify_data(layer, [x]).bound


def test_the_report_keeps_the_networks_bound_and_the_comparison(tmp_path: Path) -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softmax(1), nn.Conv2d(4, 2, 1)).eval()
    model, report = convert_model(cnn)
    compared = compare_layers(cnn, model, [torch.rand(2, 3, 9, 8)])
    certified = CertifiedReport.of(model, report, input_range=(0.0, 1.0), size=(9, 8))
    save_converted(model, tmp_path / "out", report=replace(certified, comparison=compared))
    written = json.loads((tmp_path / "out" / REPORT).read_text())
    assert written["certified_range"] == [0, 1]
    assert written["network"]["size"] == [9, 8]
    assert written["network"]["unbounded"][0] == {"name": "1", "reason": "no bound is known for Softmax"}
    assert written["network"]["bound"] is None
    assert [layer["name"] for layer in written["comparison"]] == ["0", "2"]
    assert written["layers"][0]["certificate"] == certify(model[0], input_range=(0, 1)).to_json()  # type: ignore[index]
