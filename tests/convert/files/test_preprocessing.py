"""Pictures are prepared by the owner's own code, or without it scaled and normalised, with a sentence about it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import CheckpointError, OptionError
from conv2attn.convert.files.preprocessing import (
    Normalization,
    Owner,
    Preprocessing,
    caveats,
    from_folder,
    from_timm,
    from_torchvision,
    from_transformers,
)
from conv2attn.learn.data.pictures import picture_reader
from tests.registries import TIMM as TIMM_LIBRARY
from tests.registries import TORCHVISION, TRANSFORMERS, install

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


def plain(**given: Any) -> Preprocessing:
    return Preprocessing(**{"normalization": Normalization(MEAN, STD), **given})


def without_owner(found: Preprocessing | None) -> Preprocessing:
    assert found is not None
    return replace(found, owner=None)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, plain(size=Size(224, 224))),
        ({"input_size": (3, 224, 160), "crop_pct": 0.9}, plain(size=Size(224, 160))),
        (
            {"input_size": (1, 28, 28), "mean": 0.5, "std": 0.25},
            Preprocessing(Normalization((0.5,), (0.25,)), channels=1, size=Size(28, 28)),
        ),
    ],
)
def test_a_configuration_of_timm_is_read(more: dict[str, Any], found: Preprocessing) -> None:
    assert without_owner(from_timm(TIMM | more)) == found


def test_torchvision_s_weights_describe_their_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(TORCHVISION, tmp_path, monkeypatch)
    normalization = Normalization((0.5, 0.25, 0.5), (0.5, 0.5, 0.25))
    assert without_owner(from_torchvision("torchvision.models:tiny")) == Preprocessing(normalization, size=Size(7, 7))
    detector = from_torchvision("torchvision.models.segmentation:segmenter")
    assert without_owner(detector) == Preprocessing(Normalization((0.0,), (1.0,)))
    for other in ("torchvision.models:quantized_tiny", "torchvision.models:unregistered", "timm:tiny", "net.py:tiny"):
        assert from_torchvision(other) is None


def test_what_is_of_no_pictures_has_no_preprocessing() -> None:
    for more in ({"mean": None}, {"input_size": (8, 3, 112, 112)}):
        assert from_timm(TIMM | more) is None
    assert from_transformers({"feature_size": 80, "sampling_rate": 16000}) is None


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"size": {"height": 512, "width": 384}}, {"size": Size(512, 384)}),
        ({"size": 224}, {"size": Size(224, 224)}),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 200}},
            {"size": Size(224, 200)},
        ),
        ({"size": 256, "do_center_crop": True, "crop_size": 224}, {"size": Size(224, 224)}),
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}}, {}),
        ({"do_resize": False, "size": 224}, {}),
        ({"do_normalize": False}, {"normalization": Normalization((0.0,), (1.0,))}),
    ],
)
def test_an_image_processor_of_transformers_is_read(more: dict[str, Any], found: dict[str, Any]) -> None:
    assert without_owner(from_transformers(HF | more)) == plain(**found)


def owned_by_timm() -> Preprocessing | None:
    return from_timm(TIMM | {"crop_mode": "squash"})


def owned_by_torchvision() -> Preprocessing | None:
    return from_torchvision("torchvision.models:tiny")


def owned_by_transformers() -> Preprocessing | None:
    return from_transformers(
        HF | {"image_processor_type": "TinyImageProcessor", "crop_pct": 0.5, "auto_map": {"a": "b"}}
    )


OWNERS: dict[str, tuple[dict[str, str], Callable[[], Preprocessing | None]]] = {
    "timm": (TIMM_LIBRARY, owned_by_timm),
    "torchvision": (TORCHVISION, owned_by_torchvision),
    "transformers": (TRANSFORMERS, owned_by_transformers),
}


@pytest.mark.parametrize("name", OWNERS)
def test_the_owner_s_own_code_prepares_pictures_where_its_library_is_installed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, owned = OWNERS[name]
    install(files, tmp_path, monkeypatch)
    known = owned()
    assert known is not None
    assert caveats(Preprocessing.from_json(json.loads(json.dumps(known.to_json())))) == []
    Image.new("RGB", (3, 2)).save(tmp_path / "a.png")
    assert torch.equal(picture_reader(known)(tmp_path / "a.png"), torch.full((3, 2, 3), 7.0))  # as the stand-ins do
    assert picture_reader(known, Size(4, 5))(tmp_path / "a.png").shape == (3, 4, 5)


@pytest.mark.parametrize("name", ["timm", "transformers"])
def test_without_the_owner_s_library_pictures_are_scaled_and_normalised_and_the_rest_is_said_to_be_left(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # whatever else is installed
    known = OWNERS[name][1]()
    assert known is not None
    (said,) = caveats(known)
    assert f"{name} is not installed" in said
    assert ("scaled to 224x224" in said) == (known.size is not None)
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    assert picture_reader(known)(tmp_path / "a.png").shape[1:] == (known.size or (20, 30))
    install({f"{name}/__init__.py": "raise RuntimeError('broken')"}, tmp_path, monkeypatch)
    assert f"importing {name} failed: RuntimeError: broken" in caveats(known)[0]


@pytest.mark.parametrize(
    ("kind", "told"),
    [({"image_processor_type": "Tiny"}, "it has no Tiny"), ({}, "the description names no image processor")],
)
def test_an_image_processor_that_transformers_does_not_have_is_named_alone(
    kind: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = "def from_pretrained(*_, **__): raise ValueError('Unrecognized image processor in a folder: aria, beit')"
    module = f"class AutoImageProcessor:\n    {unknown}\n"
    install({"transformers/__init__.py": module}, tmp_path, monkeypatch)
    (said,) = caveats(from_transformers(HF | kind))
    assert said.endswith(f"cannot prepare pictures: {told}")


def test_a_preprocessing_without_an_owner_has_nothing_to_tell() -> None:
    assert caveats(None) == caveats(plain()) == []


def test_a_folder_says_its_preprocessing(tmp_path: Path) -> None:
    assert from_folder(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": TIMM}))
    assert without_owner(from_folder(tmp_path)) == plain(size=Size(224, 224))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(HF | {"size": 96}))
    assert without_owner(from_folder(tmp_path)) == plain(size=Size(96, 96))
    (tmp_path / "preprocessor_config.json").write_text("[")
    with pytest.raises(CheckpointError):
        from_folder(tmp_path)


# The numbers


def test_a_normalization_is_that_of_torchvision() -> None:
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
    pictures = torch.randint(0, 257, (2, 3, 4, 5)) / 128 - 1  # every step below is exact in binary
    made = Normalization(mean, std)(pictures)
    for channel in range(3):
        assert torch.equal(made[:, channel], ((pictures[:, channel] + 1) / 2 - mean[channel]) / std[channel])


def test_bytes_are_divided_and_normalised_in_single_precision_as_torchvision_and_transformers_do() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
    mean, std = 0.485, 0.229
    made = Normalization((mean,), (std,))(pixels)
    unit = pixels.float().div(255)  # ToTensor
    assert torch.equal(made, unit.clone().sub_(torch.tensor(mean)).div_(torch.tensor(std)))
    rescaled = (pixels.numpy().astype(np.float64) * (1 / 255)).astype(np.float32)  # transformers' rescale
    assert torch.equal(unit, torch.from_numpy(rescaled))


ONE = Normalization((0.0,), (1.0,))


OWNED = Preprocessing(ONE, size=Size(224, 200), owner=Owner("timm", {"a": 1}))


@pytest.mark.parametrize(
    "made",
    [
        Preprocessing(ONE),
        OWNED,
        Preprocessing(Normalization((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), channels=4, size=Size(3, 4)),
    ],
)
def test_a_preprocessing_is_read_again(made: Preprocessing) -> None:
    assert Preprocessing.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_normalization_of_the_caller_s_takes_the_place_of_the_owner_s_code() -> None:
    own = Normalization((0.5,), (0.25,))
    assert OWNED.with_normalization(own) == replace(OWNED, normalization=own, owner=None)


WRONG: list[dict[str, Any]] = [
    {"mean": None},
    {"size": [3, 0]},
    {"channels": 2},
    {"owner": {"library": "timm"}},
    {"owner": {"library": "keras", "description": {}}},
    {"owner": {"library": "timm", "description": 3}},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_describes_no_preprocessing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Preprocessing.from_json(Preprocessing(ONE).to_json() | wrong)
    for mean, std in (((0.0,), (0.0,)), ((math.nan,), (1.0,)), ((0.0,) * 3, (1.0,) * 2)):
        with pytest.raises(OptionError, match="mean"):
            Normalization(mean, std)
