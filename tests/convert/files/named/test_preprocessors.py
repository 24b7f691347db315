"""What timm and transformers write of a network's preprocessing is read: compared with both by hand, 2026-11."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.named.preprocessors import from_folder, from_timm, from_torchvision, from_transformers
from conv2attn.convert.preprocessing import Normalization, Preprocessing
from conv2attn.convert.size import Size
from tests.registries import TORCHVISION, install

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TIMM: dict[str, Any] = {"input_size": (3, 224, 224), "mean": MEAN, "std": STD, "interpolation": "bicubic"}
HF: dict[str, Any] = {
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": list(MEAN),
    "image_std": list(STD),
    "resample": 3,
}


def timm(**given: Any) -> Preprocessing:
    return Preprocessing(**{"normalization": Normalization(MEAN, STD), **given})


def transformers(**given: Any) -> Preprocessing:
    return timm(owner="transformers", **given)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, timm(scale=256, crop=Size(224, 224))),  # floor(224 / 0.875)
        ({"crop_pct": 0.95}, timm(scale=235, crop=Size(224, 224))),
        ({"crop_pct": 1.0, "crop_mode": "squash"}, timm(scale=Size(224, 224), crop=Size(224, 224))),
        ({"input_size": (3, 224, 160)}, timm(scale=Size(224, 160))),
        ({"interpolation": "random"}, timm(scale=256, crop=Size(224, 224), interpolation="bilinear")),
        ({"input_size": (1, 28, 28), "mean": 0.5, "std": 0.25}, None),
    ],
)
def test_a_configuration_of_timm_is_read(more: dict[str, Any], found: Preprocessing | None) -> None:
    grey = Preprocessing(Normalization((0.5,), (0.25,)), channels=1, scale=32, crop=Size(28, 28))
    assert from_timm(TIMM | more) == (found or grey)


def test_torchvision_s_weights_describe_their_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(TORCHVISION, tmp_path, monkeypatch)
    normalization = Normalization((0.5, 0.25, 0.5), (0.5, 0.5, 0.25))
    wanted = Preprocessing(normalization, scale=9, crop=Size(7, 7), interpolation="bicubic")
    assert from_torchvision("torchvision.models:tiny") == wanted
    detector = from_torchvision("torchvision.models.segmentation:segmenter")
    assert detector == Preprocessing(Normalization((0.0,), (1.0,)), interpolation="bilinear")
    for other in ("torchvision.models:quantized_tiny", "torchvision.models:unregistered", "timm:tiny", "net.py:tiny"):
        assert from_torchvision(other) is None


@pytest.mark.parametrize("more", [{"mean": None}, {"input_size": (8, 3, 112, 112)}])
def test_a_configuration_without_pictures_has_no_preprocessing(more: dict[str, Any]) -> None:
    assert from_timm(TIMM | more) is None


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"size": {"height": 512, "width": 384}}, {"scale": Size(512, 384)}),
        ({"size": 224}, {"scale": Size(224, 224)}),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 200}},
            {"scale": 256, "crop": Size(224, 200)},
        ),
        ({"size": 256, "do_center_crop": True, "crop_size": 224}, {"scale": 256, "crop": Size(224, 224)}),
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}}, {"scale": 800, "longest": 1333}),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, {"scale": 256, "crop": Size(224, 224)}),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, {"scale": Size(384, 384)}),
        ({"do_resize": False, "size": 224}, {}),
        ({"size": {"height": 96, "width": 96}, "keep_aspect_ratio": True}, {"scale": Size(96, 96)}),
        ({"size": {"shortest_edge": 800}, "size_divisor": 32}, {}),
        ({"do_flip_channel_order": True}, {"reverse": True}),
        ({"resample": 2}, {"interpolation": "bilinear"}),
        ({"do_normalize": False}, {"normalization": Normalization((0.0,), (1.0,))}),
        ({"do_rescale": False, "image_mean": 102.0, "image_std": 51}, {"normalization": Normalization((0.4,), (0.2,))}),
        (
            {"rescale_factor": 2 / 255, "rescale_offset": True, "image_mean": 0.0, "image_std": 0.5},
            {"normalization": Normalization((0.5,), (0.25,))},
        ),
        ({"include_top": True, "image_mean": 0.5, "image_std": 0.5}, {"normalization": Normalization((0.5,), (0.25,))}),
    ],
)
def test_an_image_processor_of_transformers_is_read(more: dict[str, Any], found: dict[str, Any]) -> None:
    assert from_transformers(HF | more) == transformers(**found)


def test_a_processor_of_something_else_has_no_preprocessing() -> None:
    assert from_transformers({"feature_size": 80, "sampling_rate": 16000}) is None


def test_a_folder_says_its_preprocessing(tmp_path: Path) -> None:
    assert from_folder(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": TIMM}))
    assert from_folder(tmp_path) == timm(scale=256, crop=Size(224, 224))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(HF | {"size": 96}))
    assert from_folder(tmp_path) == transformers(scale=Size(96, 96))
    (tmp_path / "preprocessor_config.json").write_text("[")
    with pytest.raises(CheckpointError):
        from_folder(tmp_path)
