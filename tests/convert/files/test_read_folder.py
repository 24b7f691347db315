"""The two files of a converted folder are of one version, list the same tensors, and hold what layers can have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.config import FORMAT_VERSION
from conv2attn.convert.files.folder import read_folder
from conv2attn.convert.spec import ConvSpec

SPEC = ConvSpec(1, 2, kernel_size=(1, 3))
LAYER: dict[str, Any] = {"spec": SPEC.to_json(), "engine": "auto", "content_key_dim": None, "axis_offsets": None}
CENTERS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])  # counted from the first tap


def write(
    folder: Path, state: dict[str, Tensor], *, config: int = FORMAT_VERSION, weights: int | None = None, **said: Any
) -> Path:
    described = {"format": "conv2attn", "format_version": config, "content": "network", "architecture": None}
    described |= {"layers": [LAYER | {"names": ["a", "b.c"]}]} | said
    (folder / "config.json").write_text(json.dumps(described))
    save_file(state, folder / "model.safetensors", {"conv2attn": str(config if weights is None else weights)})
    return folder


@pytest.mark.parametrize(("config", "weights"), [(2, 3), (3, 2), (1, 2), (2, 1)])
def test_both_files_are_of_one_version(config: int, weights: int, tmp_path: Path) -> None:
    told = f"{tmp_path} is damaged: config.json and model.safetensors are not of one version"
    with pytest.raises(CheckpointError, match=re.escape(told)):
        read_folder(write(tmp_path, {"x": torch.zeros(1)}, config=config, weights=weights))


def test_tensors_come_in_the_order_that_is_told_and_no_other_are_there(tmp_path: Path) -> None:
    state = {name: torch.zeros(1) for name in "xyz"}
    assert list(read_folder(write(tmp_path, state, tensors=["z", "x", "y"]))[1].state_dict) == ["z", "x", "y"]
    assert set(read_folder(write(tmp_path, state))[1].state_dict) == set("xyz")
    told = f"{tmp_path} is damaged: config.json lists other tensors than model.safetensors holds"
    for listed in (["x", "y"], ["x", "y", "z", "w"], ["x", "y", "w"], []):
        with pytest.raises(CheckpointError, match=re.escape(told)):
            read_folder(write(tmp_path, state, tensors=listed))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_positions_of_earlier_versions_are_counted_anew_under_every_name(version: int, tmp_path: Path) -> None:
    state = {"a.centers": CENTERS, "b.c.centers": CENTERS.clone(), "d.centers": CENTERS.clone()}
    found = read_folder(write(tmp_path, state, config=version))[1].state_dict
    moved = CENTERS - torch.tensor([0.0, 1.0]) if version < 3 else CENTERS
    assert torch.equal(found["a.centers"], moved)
    assert torch.equal(found["b.c.centers"], moved)
    assert torch.equal(found["d.centers"], CENTERS)


@pytest.mark.parametrize("key", ["a.weight", "a.content.gate", "b.c.bias", "b.c.axis_scores.rows"])
def test_layers_have_weights_of_the_dtypes_that_layers_have(key: str, tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        read_folder(write(tmp_path, {key: torch.zeros(1, dtype=dtype)}))
    for dtype in (torch.int64, torch.bool, torch.uint8):
        with pytest.raises(CheckpointError, match=rf"has '{key}' of {dtype}, which no attention layer has"):
            read_folder(write(tmp_path, {key: torch.zeros(1, dtype=dtype)}))
        for other in ("d.weight", "weight", "c.bias", f"{key}.x.y"):
            read_folder(write(tmp_path, {other: torch.zeros(1, dtype=dtype)}))


def test_a_layer_s_bias_is_of_its_weight_s_dtype(tmp_path: Path) -> None:
    half, single = torch.zeros(2).half(), torch.zeros(2)
    with pytest.raises(CheckpointError, match=r"has 'b\.c\.bias' of another dtype than the layer's weight"):
        read_folder(write(tmp_path, {"b.c.weight": single, "b.c.bias": half}))
    for state in (
        {"b.c.weight": half, "b.c.bias": half.clone()},
        {"d.weight": single, "d.bias": half},
        {"a.bias": half, "b.c.weight": single},
        {"a.weight": single, "a.xbias": half},
    ):
        read_folder(write(tmp_path, state))
