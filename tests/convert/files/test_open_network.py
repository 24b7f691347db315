"""Every command opens networks by one door: what it reads, what it refuses, and how it says so are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.errors import ArchitectureNeededError
from conv2attn.convert.examples.networks import load_example
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.layers import ATTENTION_KEYS
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.layer.spare import SpareHeads
from tests.command import Run
from tests.small_models import Composite, attention, composite_input

NET = Architecture("tests.small_models:Composite")
ARCH = ("--arch", "net.py:Composite")


@pytest.fixture(autouse=True)
def _architecture(tmp_path: Path) -> None:
    """The file of the architecture, in the folder that commands run in."""
    (tmp_path / "net.py").write_text("from tests.small_models import Composite\n")


def commands(source: str, *options: str) -> dict[str, tuple[str, ...]]:
    """A call of every command that takes a network."""
    return {
        "plan": ("plan", source, "--size", "8x9", *options),
        "convert": ("convert", source, "--out", "out", "--size", "8x9", "--no-page", *options),
        "show": ("show", source, "--out", "page.html", "--size", "8x9", *options),
        "verify": ("verify", source, "--random", "1", "--size", "8x9", *options),
        "restore": ("restore", source, "--out", "cnn.pth", *options),
    }


def converted(**options: Any) -> nn.Module:
    return convert_model(Composite().eval(), **options).model


# What is opened


def as_state_dict(cnn: nn.Module) -> None:
    torch.save(cnn.state_dict(), "source")


def as_hugging_face_cache(cnn: nn.Module) -> None:
    Path("models--x", "blobs").mkdir(parents=True)
    save_file({key: value.clone() for key, value in cnn.state_dict().items()}, "models--x/blobs/123")
    Path("models--x", "snapshots", "abc").mkdir(parents=True)
    Path("models--x", "snapshots", "abc", "model.safetensors").symlink_to("../../blobs/123")
    Path("source").symlink_to("models--x/snapshots/abc")


def as_converted_folder(cnn: nn.Module) -> None:
    save_converted(convert_model(cnn).model, "source")


def as_training_checkpoint_of_the_converted(cnn: nn.Module) -> None:
    state = convert_model(cnn).model.state_dict()
    torch.save({"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}, "source")


def as_pickled_module(cnn: nn.Module) -> None:
    torch.save(cnn, "source")


def as_pickled_converted_module(cnn: nn.Module) -> None:
    torch.save(convert_model(cnn).model, "source")


Source = Callable[[nn.Module], None]
SOURCES: list[Source] = [
    as_state_dict,
    as_pickled_module,
    as_hugging_face_cache,
    as_converted_folder,
    as_training_checkpoint_of_the_converted,
    as_pickled_converted_module,
]


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_source_opens_as_the_network_that_it_holds(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cnn, x = Composite().eval(), composite_input()
    source(cnn)
    network = open_network("source", Opening(NET))
    assert network.is_converted == (source not in SOURCES[:3])
    assert torch.equal(open_network("source", Opening(NET)).whole().as_saved()(x), cnn(x))
    assert torch.equal(network.cnn()(x), cnn(x))


@pytest.mark.parametrize("source", [as_hugging_face_cache, as_converted_folder])
def test_every_command_opens_what_the_others_open(source: Source, run: Run) -> None:
    source(Composite().eval())
    for name, command in commands("source", *ARCH).items():
        code, out, err = run(*command)
        if name == "restore" and source is as_hugging_face_cache:
            assert code == 3
            assert "source holds no attention layer, so there is nothing to restore; conv2attn convert source" in err
        else:
            assert (code, err) == (0, ""), (name, out)


def with_trained_positions(layer: SelfAttention) -> None:
    layer.set_positions(alpha=1.5)
    layer.train_positions()


def with_content(layer: SelfAttention) -> None:
    terms = layer.add_content(3)
    nn.init.normal_(terms.query_weight)


@pytest.mark.parametrize("change", [with_trained_positions, with_content])
@pytest.mark.parametrize("held", [lambda model: model, lambda model: {"epoch": 3, "model": [model]}])
def test_a_trusted_pickle_of_a_network_that_was_trained_as_attention_is_that_network(
    held: Callable[[nn.Module], object], change: Callable[[SelfAttention], None], run: Run
) -> None:
    model = convert_model(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())).model.eval()
    change(attention(model, "0"))
    torch.save(held(model), "source")
    with pytest.raises(ArchitectureNeededError, match="a pickled network of classes whose code is not run"):
        open_network("source").as_saved()
    x = torch.rand(2, 3, 5, 6)
    assert torch.equal(open_network("source", Opening(trust=True)).as_saved()(x), model(x))
    for command in ("convert", "restore"):
        code, _, err = run(command, "source", "--out", f"{command}.pth", "--trust")
        assert (code, "1 of 1 attention layers compute what no convolution computes" in err) == (3, True), err


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, True), (torch.float64, False)])
def test_the_state_dict_of_a_converted_network_opens_as_that_network(
    dtype: torch.dtype, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = converted(alpha=1.5).to(dtype)
    attention(model, "stem").add_content(3)
    attention(model, "blocks.2").set_axis_scores(*(torch.rand(6, 41, dtype=dtype) for _ in range(2)))
    torch.save(model.state_dict(), tmp_path / "w.pt")
    if large:
        monkeypatch.setattr("conv2attn.convert.files.open.LARGE", 0)
    network = open_network(tmp_path / "w.pt", Opening(NET))
    assert network.is_converted
    opened = network.attention()
    state = opened.state_dict()
    assert list(state) == list(model.state_dict())
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {dtype}
    assert opened.get_submodule("blocks.0") is opened.get_submodule("blocks.2")
    x = composite_input(dtype)
    assert torch.equal(opened(x), model(x))


def test_the_keys_of_an_attention_layer_are_all_known() -> None:
    layer = attention(converted(), "stem")
    layer.add_content(2)
    layer.set_axis_scores(torch.rand(6, 9), torch.rand(6, 9))
    layer.add_spare_heads(SpareHeads(1, 2, 2, positions=True))
    keys = set(layer.state_dict())
    layer.train_positions()
    assert keys | set(layer.state_dict()) == {"weight", "bias", *ATTENTION_KEYS} - {"axis_scores.planes"}


# What is refused, in the same way by every command


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (as_state_dict, "but not the strides and paddings"),
        (as_pickled_module, "(tests.small_models.Composite)"),
        (as_pickled_converted_module, "(tests.small_models."),
    ],
)
def test_a_missing_architecture_is_wrong_usage_for_every_command(source: Source, words: str, run: Run) -> None:
    source(Composite())
    for name, command in commands("source").items():
        if name == "restore" and source is not as_pickled_converted_module:
            continue
        code, out, err = run(*command)
        assert (code, out) == (2, ""), name
        assert err.startswith("conv2attn: --arch is missing")
        assert ("--trust" in err) == (source is not as_state_dict)
        assert f"conv2attn {' '.join(command)} --arch " in err  # the command that would work
        assert words in err


def test_a_folder_that_names_no_architecture_is_shown_but_not_verified(run: Run) -> None:
    save_converted(converted(), "source")
    for name, words in (("plan", ""), ("show", "Without the network")):
        code, _, err = run(*commands("source")[name])
        assert (code, err.startswith(words), bool(err)) == (0, True, bool(words))
    code, _, err = run(*commands("source")["verify"])
    assert code == 2
    assert err.startswith("conv2attn: --arch is missing")
    assert "to run the whole network takes its architecture" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("verify", "folder", "--alpha", "3"), "alpha has no meaning"),
        (("verify", "folder", "--skip-unsupported"), "skipping unsupported layers has no meaning"),
        (("restore", "folder", "--out", "cnn.pth", "--ema"), "keeps one set of weights"),
        (("convert", "cnn.pt", "--out", "out", "--arch-arg", "a=1"), "goes with --arch"),
        (("verify", "cnn.pt", *ARCH, "--data", ".", "--seed", "1"), "a seed has no meaning"),
        (("verify", "cnn.pt", *ARCH, "--data", ".", "--random", "1"), "a number of random images has no meaning"),
        (("show", "folder", "--out", "x.html", "--picture", "maps"), "a page holds every picture"),
    ],
)
def test_options_without_a_meaning_are_refused_in_one_sentence(
    arguments: tuple[str, ...], reason: str, run: Run
) -> None:
    save_converted(convert_model(load_example("plain")).model, "folder", architecture=Architecture(PLAIN))
    torch.save(Composite().state_dict(), "cnn.pt")
    before = sorted(Path().iterdir())
    code, out, err = run(*arguments)
    assert (code, out) == (2, ""), err
    assert reason in " ".join(err.split())
    assert sorted(Path().iterdir()) == before


PLAIN = "conv2attn.convert.examples.networks:plain_cnn"
