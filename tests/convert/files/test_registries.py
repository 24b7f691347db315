"""Registered names are built with random weights, without asking; what fetches or runs foreign code takes consent."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from conv2attn.convert.errors import ArchitectureError, TrustNeededError
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.names import offline
from tests.registries import TIMM, TORCHVISION, TRANSFORMERS, install

FOLDER = Path("converted")


@pytest.fixture(autouse=True)
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for files in (TIMM, TORCHVISION, TRANSFORMERS):
        install(files, tmp_path, monkeypatch)


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
        ("torchvision.models:segmenter", {"weights_backbone": "V1"}, "as its argument weights_backbone says"),
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


def test_consent_lets_a_library_fetch() -> None:
    Architecture("timm:hf-hub:someone/tiny").build(trust=True)
    Architecture("torchvision.models:tiny", {"weights": "DEFAULT"}).build(trust=True)
    assert (fetched("timm"), fetched("torchvision.models")) == (["hf-hub:someone/tiny"], ["DEFAULT"])


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
    ("spec", "told"),
    [
        ("tiny", "'tiny' does not name an architecture; close names: torchvision.models:tiny, timm:tiny, timm:tinier"),
        ("timm:tinny", "timm has no network 'tinny'; close names: tiny"),
        ("torchvision.models:tinny", "torchvision.models has no tinny; close names: tiny"),
        ("transformers:TinyForImage", "transformers has no network 'TinyForImage'; close names: TinyForImages"),
    ],
)
def test_an_unknown_name_is_refused_with_the_names_that_are_close(spec: str, told: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        Architecture(spec).build()
    assert str(caught.value).startswith(told)


def test_a_library_that_is_not_installed_is_named_and_a_word_is_told_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("timm", "torchvision", "transformers"):
        monkeypatch.setitem(sys.modules, library, None)
    for library in ("timm", "transformers"):
        with pytest.raises(ArchitectureError, match=f"{library} is not installed: pip install"):
            Architecture(f"{library}:tiny").build()
    with pytest.raises(ArchitectureError, match=r"the form is path/to/file\.py:NAME or package\.module:NAME"):
        Architecture("resnet18").build()


def test_nothing_is_fetched_by_huggingface_hub_meanwhile() -> None:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    with offline():
        assert constants.is_offline_mode()
    assert before == constants.HF_HUB_OFFLINE
