"""A Hugging Face folder says which network it holds; it is loaded from the folder alone, and remembered without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conv2attn.convert.errors import CheckpointError, TrustNeededError
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.names import is_model_folder, pretrained
from tests.registries import TIMM, TRANSFORMERS, install

CONFIG: dict[str, Any] = {"architectures": ["TinyForImages"], "model_type": "tiny", "width": 4, "_name_or_path": "/me"}
OWN = {"architectures": ["Mine"], "auto_map": {"AutoModel": "net.Mine"}, "width": 5}
NET = """
from pathlib import Path
from transformers import TinyForImages
Path(__file__).with_name("ran").touch()
class Mine(TinyForImages): pass
"""


@pytest.fixture(autouse=True)
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for files in (TIMM, TRANSFORMERS):
        install(files, tmp_path / "libraries", monkeypatch)


def folder(place: Path, config: object, width: int = 4) -> Path:
    made = place / "network"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(config))
    (made / "net.py").write_text(NET)
    state = {"conv.weight": torch.arange(27.0 * width).view(width, 3, 3, 3), "conv.bias": torch.zeros(width)}
    torch.save(state, made / "weights.pth")
    return made


def test_a_folder_is_loaded_with_its_weights(tmp_path: Path) -> None:
    place = folder(tmp_path, CONFIG)
    assert is_model_folder(place)
    made = pretrained(place)
    assert not made.training
    assert torch.equal(made.state_dict()["conv.weight"].flatten(), torch.arange(108.0))


def test_what_a_folder_describes_is_remembered_without_it(tmp_path: Path) -> None:
    place = folder(tmp_path, CONFIG)
    found = Architecture(f"hf:{place}").resolved()
    kept = {key: value for key, value in CONFIG.items() if key != "_name_or_path"}
    assert found == Architecture("transformers:TinyForImages", {"config": kept})
    assert found.resolved() == found
    for known in (found, Architecture(f"hf:{place}")):
        assert known.build(named_by=place).state_dict()["conv.weight"].shape == (4, 3, 3, 3)
    other = Architecture(f"hf:{place}", {"width": 6}).build()
    assert other.state_dict()["conv.weight"].shape == (6, 3, 3, 3)


def test_a_folder_of_timm_is_one_of_its_networks(tmp_path: Path) -> None:
    known = {"mean": [0.5], "url": "https://somewhere", "hf_hub_id": "some/where"}
    config = {"architecture": "tiny", "num_classes": 7, "pretrained_cfg": known, "model_args": {"width": 5}}
    config |= {"num_features": 5, "global_pool": "avg"}  # which inform, and which timm's own loader passes over
    place = folder(tmp_path, config)
    assert is_model_folder(place)
    found = Architecture(f"hf:{place}").resolved()
    assert found == Architecture("timm:tiny", {"pretrained_cfg": {"mean": [0.5], "num_classes": 7}, "width": 5})
    assert found.build(named_by=place).state_dict()["0.weight"].shape[0] == 5
    outside = folder(tmp_path / "libraries", config | {"architecture": "hf-hub:some/where"})
    with pytest.raises(TrustNeededError, match="makes timm fetch"):
        Architecture(f"hf:{outside}").build()


@pytest.mark.parametrize("named_by", [None, Path("converted")])
def test_a_folder_with_code_of_its_own_takes_consent(named_by: Path | None, tmp_path: Path) -> None:
    place = folder(tmp_path, OWN, width=5)
    found = Architecture(f"hf:{place}").resolved()
    assert found == Architecture(f"hf:{place.resolve()}")
    with pytest.raises(TrustNeededError, match=r"has code of its own"):
        found.build(named_by=named_by)
    with pytest.raises(TrustNeededError, match=r"has code of its own in the folder, {'AutoModel': 'net.Mine'}"):
        pretrained(place)
    assert not (place / "ran").exists()
    assert type(found.build(trust=True, named_by=named_by)).__name__ == "Mine"
    assert type(pretrained(place, trust=True)).__name__ == "Mine"
    assert (place / "ran").exists()


def test_weights_that_are_missing_or_of_another_shape_are_refused(tmp_path: Path) -> None:
    place = folder(tmp_path, CONFIG, width=3)
    with pytest.raises(CheckpointError, match=r"transformers cannot load .*: RuntimeError"):
        pretrained(place)
    torch.save({"conv.weight": torch.zeros(4, 3, 3, 3)}, place / "weights.pth")
    with pytest.raises(CheckpointError, match=r"lacks weights of TinyForImages: conv.bias"):
        pretrained(place)


def test_a_folder_that_describes_no_network_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path, {})
    assert not is_model_folder(place)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Architecture(f"hf:{place}").build()
