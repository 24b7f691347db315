"""A converted network goes to the Hub's formats and back, bit for bit, with a card that says what it is. Offline."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from torch import nn

from conv2attn.convert import ConversionError, SelfAttention, convert_model, graft, restore_model
from conv2attn.convert.examples.networks import plain_cnn
from conv2attn.convert.export import hub
from conv2attn.convert.export.hub import HubNetwork
from conv2attn.convert.files.architecture import Architecture

SPEC = Architecture("conv2attn.convert.examples.networks:plain_cnn", {})
FILES = {"README.md", "config.json", "model.safetensors", "report.json"}


def network(alpha: float | None = None) -> HubNetwork:
    return HubNetwork(convert_model(plain_cnn().eval(), alpha=alpha).model, built_by=SPEC).eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[HubNetwork, Path]:
    """A network, and the folder that it was saved in."""
    saved, folder = network(), tmp_path_factory.mktemp("hub") / "USER" / "NAME"
    saved.save_pretrained(folder)
    return saved, folder


@torch.no_grad()
def assert_same(loaded: HubNetwork, saved: HubNetwork) -> None:
    x, state = torch.rand(2, 3, 12, 10), saved.state_dict()
    assert torch.equal(loaded(x), saved(x))
    assert state.keys() == loaded.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())


def test_what_is_saved_comes_back_bit_for_bit_and_so_does_the_convolutional_network(
    made: tuple[HubNetwork, Path],
) -> None:
    saved, folder = made
    assert {path.name for path in folder.iterdir()} == FILES
    loaded, x = HubNetwork.from_pretrained(folder), torch.rand(2, 3, 12, 10)
    assert_same(loaded, saved)
    assert torch.equal(restore_model(loaded.network)(x), loaded(x))


def test_trained_spare_heads_come_back_too(tmp_path: Path) -> None:
    model = graft(plain_cnn().eval(), where="last", heads=2).model
    torch.nn.init.normal_(next(value for name, value in model.named_parameters() if name.endswith("spare_out")))
    saved = HubNetwork(model, built_by=SPEC).eval()
    saved.save_pretrained(tmp_path / "net")
    assert_same(HubNetwork.from_pretrained(tmp_path / "net"), saved)


def test_a_network_of_the_users_own_code_needs_its_architecture(tmp_path: Path) -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    HubNetwork(convert_model(cnn).model).save_pretrained(tmp_path / "net")
    with pytest.raises(ConversionError, match="architecture"):
        HubNetwork.from_pretrained(tmp_path / "net")
    loaded = HubNetwork.from_pretrained(tmp_path / "net", architecture=nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    x = torch.randn(1, 3, 5, 6)
    assert torch.equal(loaded(x), cnn(x))
    assert "architecture=..." in (tmp_path / "net" / "README.md").read_text()


def test_the_card_has_its_tags_and_the_report_s_summary(made: tuple[HubNetwork, Path]) -> None:
    card = ModelCard.load(made[1] / "README.md")
    assert card.data.library_name == "conv2attn"
    assert {"self-attention", "arxiv:1911.03584"} <= set(card.data.tags or ())
    layers = [layer for layer in made[0].network.modules() if isinstance(layer, SelfAttention)]
    assert f"{len(layers)} layers, {sum(layer.num_heads for layer in layers)} heads." in card.text


def test_the_cards_example_runs(made: tuple[HubNetwork, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    saved, folder = made
    monkeypatch.chdir(folder.parents[1])
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    space: dict[str, Any] = {}
    exec(code, space)
    x = torch.rand(1, 3, 12, 10)
    assert torch.equal(space["network"](x), saved(x))


def test_a_card_of_ours_is_renewed_and_one_of_the_users_stays(made: tuple[HubNetwork, Path], tmp_path: Path) -> None:
    card, soft = shutil.copytree(made[1], tmp_path / "net") / "README.md", network(2.0)
    soft.save_pretrained(tmp_path / "net")
    assert "same bits as the CNN" not in card.read_text()
    assert_same(HubNetwork.from_pretrained(tmp_path / "net"), soft)
    card.write_text("my own words")
    (tmp_path / "net" / "notes.txt").write_text("kept")
    made[0].save_pretrained(tmp_path / "net")
    assert card.read_text() == "my own words"
    assert {path.name for path in (tmp_path / "net").iterdir()} == {*FILES, "notes.txt"}


def test_a_repository_is_downloaded_without_anything_but_our_files(
    made: tuple[HubNetwork, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, folder = made
    asked: dict[str, Any] = {}

    def download(**options: Any) -> str:
        asked.update(options)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", lambda **_: str(folder / "config.json"))
    loaded = HubNetwork.from_pretrained("user/name", revision="main")
    assert (asked["repo_id"], asked["revision"]) == ("user/name", "main")
    assert set(asked["allow_patterns"]) == FILES - {"README.md"}
    assert_same(loaded, saved)
