"""The commands that melt and freeze, from the data to the table and the program."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.files.open import open_network
from conv2attn.learn.comparison import small_cnn
from conv2attn.learn.data import datasets as kinds
from conv2attn.learn.data.images import ImageData
from conv2attn.learn.melting import attention_layers
from conv2attn.learn.training.folders import begin_or_resume, read_records
from tests.command import exit_code, result_of
from tests.learn.small import data as small_data


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images in the place of the digits."""

    def few(side: int | None) -> ImageData:
        return small_data(count=40)

    monkeypatch.setattr(kinds, "digits", few)


def melt(out: Path, *arguments: object) -> int:
    return exit_code("melt", *arguments, "--out", out, "--epochs", 1, "--batch", 20, "--seeds", 1)


def test_melting_ends_in_a_table_and_a_network_that_can_be_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert melt(tmp_path / "melted", "--json") == 0
    found = result_of("melt", capsys.readouterr().out)
    result = found["seeds"]["0"]
    assert set(result) == {"start", "cnn", "attention"}
    scores = {name: each["scores"] for name, each in result.items()}
    assert found["ahead"] == [100 * (scores["attention"]["accuracy"] - scores["cnn"]["accuracy"])]
    assert json.loads((tmp_path / "melted" / "melt.json").read_text(encoding="utf-8"))["seeds"] == found["seeds"]
    assert all(layer["distance"] > 0 for layer in result["attention"]["layers"].values())
    start = read_records(tmp_path / "melted" / "seed-0" / "start")
    assert result["start"]["validation"] == start[-1]["validation"]  # not the best epoch's

    network = tmp_path / "melted"
    options = ("--tolerance", "0.05", "--size", "6x7", "--data", "digits")
    assert exit_code("freeze", network, "--out", tmp_path / "frozen.pt2", *options, "--json") == 0
    frozen = result_of("freeze", capsys.readouterr().out)
    assert len(frozen["layers"]) == 4
    assert all(layer["cut_off"] <= 0.05 for layer in frozen["layers"])

    program = torch.export.load(tmp_path / "frozen.pt2").module()
    model = open_network(network).as_saved()
    assert len(list(attention_layers(model))) == 4
    images = small_data().test.images
    with torch.no_grad():
        apart = (program(images) - model(images)).abs().max()
    assert 0 < float(apart) < 0.5
    before, after = frozen["accuracy"]
    test = small_data(count=40).test
    right = model.eval()(test.images).argmax(1) == test.labels
    assert before == pytest.approx(float(right.float().mean()))
    assert abs(after - before) < 0.5
    for name, read in (("frozen.pth", torch.load), ("frozen.safetensors", load_file)):
        assert exit_code("freeze", network, "--out", tmp_path / name, "--tolerance", "0.05") == 0
        state = read(tmp_path / name)
        assert state.keys() == program.state_dict().keys()
        assert all(torch.equal(value, program.state_dict()[key]) for key, value in state.items())
    capsys.readouterr()

    assert exit_code("restore", network, "--out", tmp_path / "cnn.pth") == 3
    refused = capsys.readouterr().err
    assert "from the convolution of its weights" in refused
    assert "conv2attn freeze" in refused


def test_a_frozen_program_has_every_kind_of_convolution(tmp_path: Path) -> None:
    code = tmp_path / "net.py"
    code.write_text(
        "from torch import nn\n"
        "from conv2attn.convert.subclasses.padded import PaddedConv2d\n"
        "from conv2attn.convert.spec import ConvSpec\n"
        "def net():\n"
        "    same = PaddedConv2d(ConvSpec(3, 4, (3, 2), (2, 1), padding='same_lower'))\n"
        "    return nn.Sequential(same, nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1), nn.Conv2d(2, 3, 1))\n",
        encoding="utf-8",
    )
    torch.manual_seed(0)
    cnn = runpy.run_path(str(code))["net"]()
    torch.save(cnn.state_dict(), tmp_path / "cnn.pth")
    folder, options = tmp_path / "X", ("--arch", f"{code}:net", "--trust")
    assert exit_code("convert", tmp_path / "cnn.pth", "--out", folder, "--no-page", *options) == 0
    frozen = ("--out", tmp_path / "f.pt2", "--tolerance", "0.01", "--size", "9x10", "--trust")
    assert exit_code("freeze", folder, *frozen) == 0
    x = torch.rand(3, 3, 9, 10)
    with torch.no_grad():
        assert torch.equal(torch.export.load(tmp_path / "f.pt2").module()(x), cnn(x))


def test_a_checkpoint_melts_in_the_layers_that_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    torch.save(small_cnn(classes=3).state_dict(), tmp_path / "cnn.pth")
    architecture = ("--arch", "conv2attn.learn.comparison:small_cnn", "--arch-arg", "classes=3")
    options = ("--data", "digits", "--include", "3", "--lr", 0.03, "--lr", 0.01, "--json")
    assert melt(tmp_path / "one", tmp_path / "cnn.pth", *architecture, *options) == 0
    found = result_of("melt", capsys.readouterr().out)
    result = found["seeds"]["0"]
    assert set(result["attention"]["layers"]) == {"3"}
    assert {result[name]["lr"] for name in ("cnn", "attention")} <= {0.03, 0.01}
    assert {run.name for run in (tmp_path / "one" / "rates").iterdir()} == {
        f"{name}-{lr}" for name in ("cnn", "attention") for lr in (0.03, 0.01)
    }
    assert {run.name for run in (tmp_path / "one" / "seed-0").iterdir()} == {"cnn", "attention"}


def test_what_is_melted_is_not_replaced_by_what_comes_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    architecture = ("--arch", "conv2attn.learn.comparison:small_cnn", "--arch-arg", "classes=3")
    out, network = tmp_path / "melted", tmp_path / "cnn"
    save_converted(convert_model(small_cnn(classes=3)).model, network)
    described = {"format": "conv2attn", "content": "melting"}
    begin_or_resume(out / "melting.json", described, resume=False, what="comparison")
    (out / "network").symlink_to(network)
    before = {path: path.read_bytes() for path in network.iterdir()}
    assert melt(out, out / "network", *architecture, "--data", "digits", "--resume") == 3
    assert "would be lost" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in network.iterdir()} == before


def test_a_normalization_reaches_the_network_that_is_melted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    torch.save(small_cnn(classes=3).state_dict(), tmp_path / "cnn.pth")
    architecture = ("--arch", "conv2attn.learn.comparison:small_cnn", "--arch-arg", "classes=3", "--data", "digits")
    assert melt(tmp_path / "usual", tmp_path / "cnn.pth", *architecture, "--json") == 0
    usual = result_of("melt", capsys.readouterr().out)["seeds"]
    assert melt(tmp_path / "own", tmp_path / "cnn.pth", *architecture, "--mean", "1", "--std", "2", "--json") == 0
    assert result_of("melt", capsys.readouterr().out)["seeds"] != usual
    assert melt(tmp_path / "half", tmp_path / "cnn.pth", *architecture, "--mean", "0") == 2
    assert "needs the other of --mean and --std" in capsys.readouterr().err
