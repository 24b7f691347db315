"""The commands that graft and freeze, from the data to the table and the program."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from conv2attn.convert import convert_model, graft, save_converted, ungraft
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.open import open_network
from conv2attn.learn.comparison import small_cnn
from conv2attn.learn.data import datasets as kinds
from conv2attn.learn.data.images import ImageData
from conv2attn.learn.melting import attention_layers, melt
from conv2attn.learn.training.folders import begin_or_resume
from tests.command import exit_code, result_of
from tests.learn.small import data as small_data


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images in the place of the digits."""

    def few(side: int | None) -> ImageData:
        return small_data(count=40)

    monkeypatch.setattr(kinds, "digits", few)


ARCHITECTURE = ("--arch", "conv2attn.learn.comparison:small_cnn", "--arch-arg", "classes=3")
SHORT = ("--epochs", 1, "--batch", 20, "--seeds", 1)
SIDES = {"start", "cnn", "time", "random", "block", "before", "beside"}


def checkpoint(folder: Path) -> Path:
    torch.manual_seed(0)
    torch.save(small_cnn(classes=3).state_dict(), folder / "cnn.pth")
    return folder / "cnn.pth"


def compare(out: Path, *arguments: object) -> int:
    return exit_code("graft", *arguments, "--out", out, "--data", "digits", "--where", "3", *SHORT)


def test_a_grafted_folder_is_the_cnn_and_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--size", "24x20", "--heads", 2, "--positions", "--json")
    assert exit_code("graft", checkpoint(tmp_path), *ARCHITECTURE, "--out", tmp_path / "out", *options) == 0
    (layer,) = result_of("graft", capsys.readouterr().out)["layers"]
    assert layer["names"] == ["9"]
    assert layer["size"] == [12, 10]
    assert layer["heads"] == 2
    model = open_network(tmp_path / "out").as_saved()
    cnn, x = small_cnn(classes=3), torch.randn(2, 1, 24, 20)
    cnn.load_state_dict(torch.load(tmp_path / "cnn.pth"))
    with torch.no_grad():
        assert torch.equal(model(x), cnn.eval()(x))
    assert exit_code("restore", tmp_path / "out", "--out", tmp_path / "back.pth") == 0
    back = torch.load(tmp_path / "back.pth")
    assert all(torch.equal(value, back[key]) for key, value in cnn.state_dict().items())
    assert list(back) == list(cnn.state_dict())
    assert exit_code("verify", tmp_path / "out", "--size", "24x20") == 0


def test_trainings_are_counted_numbered_and_estimated_and_rates_are_chosen_for_each_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(tmp_path / "out", "--lr", 0.01, "--lr", 0.001, "--json") == 0
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    (plan,) = (place for place, line in enumerate(lines) if " trainings: " in line)
    total, parts = lines[plan].split(" trainings: ")
    assert parts.startswith("2 of the CNN, 10 to choose learning rates, 6 to compare; a best rate at an end")
    assert "Their steps alone take " in parts
    numbered = [re.split(r"[ ,:]", line)[1:4] for line in lines[plan + 1 :] if line.startswith("Training ")]
    assert total.startswith("18 to ")  # with those that may be added
    assert len(numbered) <= int(total.removeprefix("18 to ")) == 18 + 5 * 3  # five rates, ten times smaller: to 1e-06
    assert [int(place) for place, _, _ in numbered] == list(range(1, len(numbered) + 1))
    totals = [int(each) for _, _, each in numbered]
    assert totals == sorted(totals)
    assert totals[0] == 18
    assert totals[-1] == len(numbered)
    lefts = [re.search(r"^Training \d+ of \d+(, about .* left)?: ", line) for line in lines if "Training " in line]
    assert [each is not None and each[1] is not None for each in lefts] == [False, *[True] * (len(numbered) - 1)]
    assert "Data: small, images of 1x" in lines[0]
    assert lines[1].startswith("3 classes, with 5 to choose ")
    assert "6 to 7 to test on" in lines[1]
    assert lines[2].startswith("Each training: 1 epoch of 2 steps on 20 images, 2 steps; learning rates 0.01, 0.001")
    assert lines[3].startswith("Grafted in this comparison, on inputs of 1x")


def test_a_grey_image_that_is_repeated_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(small_cnn(channels=3, classes=3).state_dict(), tmp_path / "cnn.pth")
    start = (tmp_path / "cnn.pth", *ARCHITECTURE, "--arch-arg", "channels=3", "--lr", 0.01)
    assert compare(tmp_path / "out", *start) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("Data: "))
    assert "whose grey is repeated as the 3 channels that the CNN takes" in line


def test_all_packages_that_training_lacks_are_named_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lightning", "tensorboard", "sklearn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert compare(tmp_path / "out", Path(__file__)) == 3
    said = capsys.readouterr().err
    assert "training needs Lightning, TensorBoard and scikit-learn, which are not installed: pip install" in said
    assert exit_code("graft", "--out", tmp_path / "out", "--data", "drawn") == 3
    assert "training needs Lightning and TensorBoard, which are not installed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_comparison_ends_in_a_table_of_every_side_and_the_graft_that_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where show writes
    out = tmp_path / "grafted"
    assert compare(out, checkpoint(tmp_path), *ARCHITECTURE, "--lr", 0.01, "--json") == 0
    found = result_of("graft", capsys.readouterr().out)
    result = found["seeds"]["0"]
    assert set(result) == SIDES
    start = result["start"]["scores"]
    assert all(result[name]["begun"] == start for name in ("cnn", "time", "block", "before", "beside"))
    assert json.loads((out / "graft.json").read_text(encoding="utf-8"))["verdict"] == found["verdict"]
    # After two steps; "for the same time" may be more.
    assert found["verdict"].startswith(("Nothing was learned: every row is at chance", "Undecided, as one seed"))
    assert all(result[name]["steps"] == result[name]["epochs"] * 2 for name in SIDES - {"start"})
    assert found["kept"] == {"row": "before", "seed": 0, "grafted": ["3"], "size": [6, 7]}
    for command in found["next"]:
        capsys.readouterr()
        program, *words = shlex.split(command)
        assert program == "conv2attn"
        assert exit_code(*words) == (words[0] == "same")  # trained: more than rounding apart
    assert {command.split()[1] for command in found["next"]} == {"show", "same", "restore"}
    assert set(found["seconds"]) == SIDES - {"start"}
    model = open_network(out).as_saved()
    (layer,) = (each for _, each in attention_layers(model))
    assert not layer.spare_heads_are_off()
    assert compare(out, tmp_path / "cnn.pth", *ARCHITECTURE) == 3  # it holds a comparison
    assert compare(out, tmp_path / "cnn.pth", *ARCHITECTURE, "--lr", 0.01, "--resume", "--json") == 0
    capsys.readouterr()
    assert exit_code("restore", out, "--out", tmp_path / "cnn2.pth") == 3
    assert "conv2attn restore --ungraft" in capsys.readouterr().err


@pytest.mark.parametrize("is_trained", [False, True])
def test_every_command_on_a_grafted_folder_is_right_or_names_ungraft(
    is_trained: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = graft(small_cnn(classes=3), where="9").model.eval()
    torch.nn.init.constant_(model.get_parameter("9.spare_out"), float(is_trained))
    save_converted(model, "folder", architecture=Architecture(ARCHITECTURE[1], {"classes": 3}))
    image = ("--size", "9x8")
    for command in (
        ("verify", *image, "--random", 1),
        ("plan",),
        ("convert", "--out", "out", "--no-page", *image),
        ("export", "--out", "net.onnx", *image),
        ("freeze", "--out", "frozen.pth", "--tolerance", 0.1),
        ("show", "--out", "error.png", "--picture", "error", *image),
        ("restore", "--out", "cnn.pth"),
        ("graft", "--out", "again", "--where", "last", *image),
    ):
        capsys.readouterr()
        code = exit_code(command[0], "folder", *command[1:])
        assert (code != 0) == is_trained, command
        assert ("ungraft" in capsys.readouterr().err) == is_trained, command
    assert exit_code("show", "folder", "--out", "maps.png", *image) == 0
    assert exit_code("same", "folder", "folder", *image, "--random", 1) == 0


@pytest.mark.parametrize("kind", ["folder", "pickle"])
@pytest.mark.parametrize("beside", [False, True])
def test_restore_ungraft_writes_the_cnn_that_was_trained_which_loads_strictly(
    kind: str, beside: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(1)
    model = graft(small_cnn(classes=3), where=["3", "9"], beside=beside).model.eval()
    torch.nn.init.normal_(model.get_parameter("9.spare_out"))
    source, trust = tmp_path / "grafted", ("--trust",) if kind == "pickle" else ()
    if kind == "pickle":
        torch.save(model, source)
    else:
        save_converted(model, source, architecture=Architecture(ARCHITECTURE[1], {"classes": 3}))
    options = ("restore", source, "--out", tmp_path / "cnn.pth", "--json", *trust)
    assert exit_code(*options) == 3
    capsys.readouterr()
    assert exit_code(*options, "--ungraft") == 0
    assert result_of("restore", capsys.readouterr().out)["ungrafted"] == ["9"]
    cnn, bare, x = small_cnn(classes=3).eval(), ungraft(model, all=True).model, torch.randn(2, 1, 9, 8)
    cnn.load_state_dict(torch.load(tmp_path / "cnn.pth"), strict=True)
    assert torch.equal(cnn(x), bare(x))
    assert not torch.equal(cnn(x), model(x))


def test_rates_are_chosen_for_each_side_and_an_end_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grafted"
    assert compare(out, checkpoint(tmp_path), *ARCHITECTURE, "--lr", 1e-6, "--lr", 1e-4, "--json") == 0
    result = result_of("graft", capsys.readouterr().out)["seeds"]["0"]
    tried = {name: set[float]() for name in SIDES - {"start", "time"}}
    for run in (out / "rates").iterdir():
        name, _, rate = run.name.partition("-")
        tried[name].add(float(rate))
    for name, rates in tried.items():
        chosen = result[name]["lr"]
        assert min(rates) < chosen < max(rates) or chosen in (1e-6 / 100, 1e-2 * 100) or max(rates) >= 0.01
        assert rates >= {1e-6, 1e-4}
    assert result["time"]["lr"] == result["cnn"]["lr"]


def test_outputs_that_are_not_the_classes_are_refused_before_any_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for classes in (2, 5):
        torch.save(small_cnn(classes=classes).state_dict(), tmp_path / "cnn.pth")
        architecture = (*ARCHITECTURE[:3], f"classes={classes}")
        assert compare(tmp_path / "out", tmp_path / "cnn.pth", *architecture) == 3
        said = capsys.readouterr().err
        assert f"(Sequential) gives {classes} scores; small has 3 classes (a, b, c)" in said
        assert "Training" not in said
        assert not (tmp_path / "out").exists()


def test_labels_that_images_do_not_show_end_in_nothing_was_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small_data(count=40)
    train, validation, test = (part._replace(images=torch.randn(part.images.shape).clamp(-1, 1)) for part in data.parts)
    blind = replace(data, train=train, validation=validation, test=test)
    monkeypatch.setattr(kinds, "digits", lambda side: blind)
    assert compare(tmp_path / "out", "--lr", 0.001) == 0
    said = capsys.readouterr().out
    assert said.startswith("Nothing was learned: every row is at chance")
    assert "better" not in said
    found = json.loads((tmp_path / "out" / "graft.json").read_text(encoding="utf-8"))
    assert found["chance"] == {"level": 0.05, "images": 20, "share": 0.35, "above": []}


def test_a_melted_folder_freezes_to_a_program_and_to_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = tmp_path / "melted"
    save_converted(
        melt(small_cnn(classes=3)).eval(), network, architecture=Architecture(*ARCHITECTURE[1:2], {"classes": 3})
    )
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


def test_heads_beside_a_transposed_convolution_are_refused_before_any_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = nn.Sequential(nn.ConvTranspose2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    torch.save(network, tmp_path / "net.pt")
    start = (tmp_path / "net.pt", "--trust", "--lr", 0.01)
    options = ("--data", "digits", "--where", "0", *SHORT)
    assert exit_code("graft", *start, "--out", tmp_path / "out", *options, "--beside") == 4
    said = capsys.readouterr().err
    assert "beside the taps of a transposed convolution" in said
    assert "Training" not in said
    assert not (tmp_path / "out").exists()
    assert exit_code("graft", *start, "--out", tmp_path / "out", *options) == 0
    assert "beside" not in json.loads((tmp_path / "out" / "graft.json").read_text(encoding="utf-8"))["seeds"]["0"]


def test_a_normalization_reaches_the_network_that_is_grafted_and_repeated_grey_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(small_cnn(channels=3, classes=3).state_dict(), tmp_path / "cnn.pth")
    start = (tmp_path / "cnn.pth", *ARCHITECTURE, "--arch-arg", "channels=3", "--lr", 0.01)
    assert compare(tmp_path / "usual", *start, "--json") == 0
    usual = capsys.readouterr()
    (line,) = (line for line in usual.err.splitlines() if line.startswith("Data: "))
    assert "whose grey is repeated as the 3 channels that the CNN takes" in line
    assert compare(tmp_path / "own", *start, "--mean", "1", "--std", "2", "--json") == 0
    own = result_of("graft", capsys.readouterr().out)["seeds"]
    assert own != result_of("graft", usual.out)["seeds"]
    assert compare(tmp_path / "half", *start, "--mean", "0") == 2
    assert "--mean needs --std" in capsys.readouterr().err


def test_what_is_grafted_is_not_replaced_by_what_comes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, network = tmp_path / "grafted", tmp_path / "cnn"
    save_converted(convert_model(small_cnn(classes=3)).model, network)
    described = {"format": "conv2attn", "content": "grafting"}
    begin_or_resume(out / "grafting.json", described, resume=False, what="comparison")
    (out / "network").symlink_to(network)
    before = {path: path.read_bytes() for path in network.iterdir()}
    assert compare(out, out / "network", *ARCHITECTURE, "--resume") == 3
    assert "would be lost" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in network.iterdir()} == before
