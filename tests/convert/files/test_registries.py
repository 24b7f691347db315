"""Registered names are built with random weights, without asking; what fetches or runs foreign code takes consent."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conv2attn.convert.errors import ArchitectureError, CheckpointError, TrustNeededError
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.names import is_model_folder, offline, pretrained
from tests.registries import TIMM, TORCHVISION, TRANSFORMERS, install

FOLDER = Path("converted")


@pytest.fixture(autouse=True)
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for files in (TIMM, TORCHVISION, TRANSFORMERS):
        install(files, tmp_path / "libraries", monkeypatch)


def built(spec: str, **arguments: Any) -> nn.Module:
    """Built as a folder that names it is: without the caller's consent to anything."""
    return Architecture(spec, arguments).build(named_by=FOLDER)


def channels(network: nn.Module) -> int:
    return len(next(iter(network.state_dict().values())))


def fetched(module: str) -> list[Any]:
    return list(importlib.import_module(module).fetched)


@pytest.mark.parametrize(
    ("spec", "arguments", "width"),
    [
        ("timm:tiny", {}, 3),
        ("timm:tiny", {"width": 5}, 5),
        ("torchvision.models:tiny", {"width": 6}, 6),
        ("torchvision.models.quantization:tiny", {}, 7),
        ("torchvision.models.segmentation:segmenter", {"classes": 5}, 5),
        ("transformers:TinyForImages", {}, 2),
        ("transformers:TinyForImages", {"config": {"width": 4, "use_pretrained_backbone": True}}, 4),
        ("transformers:TinyForImages", {"config": {"backbone_config": {"use_pretrained_backbone": True}}}, 2),
    ],
)
def test_a_registered_name_is_built_without_asking_and_without_weights(
    spec: str, arguments: dict[str, Any], width: int
) -> None:
    assert channels(built(spec, **arguments)) == width
    assert not fetched("timm") + fetched("torchvision.models") + fetched("torchvision.models.segmentation")
    assert not fetched("transformers.models.tiny")


@pytest.mark.parametrize(
    ("spec", "arguments", "why"),
    [
        ("timm:hf-hub:someone/tiny", {}, "makes timm fetch 'hf-hub:someone/tiny' from elsewhere"),
        ("timm:tiny", {"pretrained": True}, "fetches weights, as its argument pretrained says"),
        ("torchvision.models:tiny", {"weights": "DEFAULT"}, "fetches weights, as its argument weights says"),
        ("torchvision.models.segmentation:segmenter", {"weights_backbone": "V1"}, "its argument weights_backbone says"),
        ("transformers:TinyForImages", {"config": {"a": [{"auto_map": {"A": "n.N"}}]}}, "has code of its own"),
        ("transformers:TinyForImages", {"config": {"attn_implementation": "someone/kernel"}}, "fetch 'someone/kernel'"),
        ("transformers:TinyForImages", {"config": {"backbone": "hf-hub:a/b"}}, "fetch 'hf-hub:a/b' from elsewhere"),
    ],
)
def test_what_fetches_or_brings_code_takes_consent_whoever_names_it(
    spec: str, arguments: dict[str, Any], why: str
) -> None:
    told = {None: f"the architecture {spec} ", FOLDER: f"converted names the architecture {spec}, which "}
    for named_by, begins in told.items():
        with pytest.raises(TrustNeededError) as caught:
            Architecture(spec, arguments).build(named_by=named_by)
        assert str(caught.value).startswith(begins)
        assert why in str(caught.value)
    assert not fetched("timm") + fetched("torchvision.models") + fetched("torchvision.models.segmentation")
    if spec.partition(":")[0] in ("timm", "torchvision.models", "torchvision.models.segmentation"):
        Architecture(spec, arguments).build(trust=True)
        assert fetched("timm") + fetched("torchvision.models") + fetched("torchvision.models.segmentation")


@pytest.mark.parametrize(
    ("spec", "arguments"),
    [
        ("os:system", {"command": "touch ran"}),
        ("torchvision.models:unregistered", {}),
        ("net.py:made", {}),
        ("conv2attn.convert.examples.networks:_residual", {}),
    ],
)
def test_code_that_a_file_names_takes_consent_and_is_not_imported(
    spec: str, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    with pytest.raises(TrustNeededError) as caught:
        built(spec, **arguments)
    told = f"converted names the architecture {spec}, which would run code that a file chose"
    assert caught.value.sentence == told
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("spec", "words", "absent"),
    [
        ("tiny", "close names: torchvision.models:tiny, timm:tiny, timm:tinier", ()),
        ("timm:tinny", "timm has no network 'tinny'; close names: tiny", ()),
        ("torchvision.models:tinny", "torchvision.models has no tinny; close names: tiny", ()),
        ("transformers:TinyForImage", "has no network 'TinyForImage'; close names: TinyForImages", ()),
        ("timm:tiny", "timm is not installed: pip install", ("timm",)),
        ("transformers:tiny", "transformers is not installed: pip install", ("transformers",)),
        ("resnet18", "the form is path/to/file.py:NAME or", ("timm", "torchvision", "transformers")),
    ],
)
def test_a_name_that_is_not_known_is_refused_with_those_that_are_close_or_what_is_missing(
    spec: str, words: str, absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in absent:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ArchitectureError) as caught:
        Architecture(spec).build()
    assert words in str(caught.value)


def test_nothing_is_fetched_by_huggingface_hub_meanwhile() -> None:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    with offline():
        assert constants.is_offline_mode()
    assert before == constants.HF_HUB_OFFLINE


# A Hugging Face folder says which network it holds


CONFIG: dict[str, Any] = {"architectures": ["TinyForImages"], "model_type": "tiny", "width": 4, "_name_or_path": "/me"}
OWN = {"architectures": ["Mine"], "auto_map": {"AutoModel": "net.Mine"}, "width": 5}
NET = """
from pathlib import Path
from transformers import TinyForImages
Path(__file__).with_name("ran").touch()
class Mine(TinyForImages): pass
"""


def folder(place: Path, config: object, width: int = 4) -> Path:
    made = place / "network"
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(config))
    (made / "net.py").write_text(NET)
    state = {"conv.weight": torch.arange(27.0 * width).view(width, 3, 3, 3), "conv.bias": torch.zeros(width)}
    torch.save(state, made / "weights.pth")
    return made


def test_a_folder_is_loaded_with_its_weights_and_what_it_describes_is_remembered_without_it(tmp_path: Path) -> None:
    place = folder(tmp_path, CONFIG)
    assert is_model_folder(place)
    made = pretrained(place)
    assert not made.training
    assert torch.equal(made.state_dict()["conv.weight"].flatten(), torch.arange(108.0))
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
    outside = folder(tmp_path / "other", config | {"architecture": "hf-hub:some/where"})
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


def test_a_folder_that_lacks_weights_or_describes_no_network_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path, CONFIG, width=3)
    with pytest.raises(CheckpointError, match=r"transformers cannot load .*: RuntimeError"):
        pretrained(place)
    torch.save({"conv.weight": torch.zeros(4, 3, 3, 3)}, place / "weights.pth")
    with pytest.raises(CheckpointError, match=r"lacks weights of TinyForImages: conv.bias"):
        pretrained(place)
    (place / "config.json").write_text("{}")
    assert not is_model_folder(place)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Architecture(f"hf:{place}").build()
