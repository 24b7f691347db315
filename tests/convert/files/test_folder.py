"""A converted model comes back from its folder bit for bit, and no folder makes the reader run code or leak errors."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from conv2attn.commands.restore import restore_file
from conv2attn.convert import (
    ConvSpec,
    attention_from_conv,
    convert_model,
    load_converted,
    save_converted,
)
from conv2attn.convert.certificate.distance import describe_distance
from conv2attn.convert.errors import (
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    NotAConvolutionError,
    OptionError,
    OutputError,
    TrustNeededError,
)
from conv2attn.convert.examples.networks import NETWORKS, load_example
from conv2attn.convert.files import folder
from conv2attn.convert.files.architecture import OWN_ARCHITECTURES, Architecture
from conv2attn.convert.files.layers import Layers, layer_tree
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.spec import DescribedConvolution
from conv2attn.convert.write import CONFIG, WEIGHTS
from conv2attn.proofs.campaign.strategies import conv_specs, convolution_of
from tests.command import Run
from tests.positions import move_center
from tests.small_models import Composite, assert_same_state, attention, composite_input

Edit = Callable[[dict[str, Any]], object]


def assert_same(model: nn.Module, expected: nn.Module) -> None:
    """State, dtypes, engines and structure are the same, bit for bit."""
    assert_same_state(model, expected)
    assert repr(model) == repr(expected)


def edit(folder: Path, change: Edit) -> None:
    config = json.loads((folder / CONFIG).read_text())
    change(config)
    (folder / CONFIG).write_text(json.dumps(config))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_converted(convert_model(Composite()).model, tmp_path / "saved")
    return tmp_path / "saved"


# Round trips


def soft_and_mixed(model: nn.Module) -> None:
    attention(model, "stem").set_positions(alpha=2.5, centers=attention(model, "stem").centers + torch.randn(6, 2))
    attention(model, "blocks.0").set_positions(alpha=torch.linspace(1.1, 3.7, 6))
    attention(model, "stem").engine, attention(model, "tied").engine = "literal", "factored"


def content_terms(model: nn.Module) -> None:
    for parameter in attention(model, "stem").add_content(3).parameters():
        nn.init.normal_(parameter, std=0.1)
    for parameter in attention(model, "tied").add_content(1).parameters():
        nn.init.uniform_(parameter)


def mixed_dtypes(model: nn.Module) -> None:
    model.get_submodule("head").double()


@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        (lambda model: None, torch.float16),
        (soft_and_mixed, torch.float64),
        (content_terms, torch.bfloat16),
        (mixed_dtypes, torch.float32),
    ],
)
def test_what_was_saved_is_loaded_bit_for_bit(
    change: Callable[[nn.Module], None], dtype: torch.dtype, tmp_path: Path
) -> None:
    model = convert_model(Composite().to(dtype)).model
    change(model)
    save_converted(model.eval(), tmp_path / "out")
    loaded = load_converted(tmp_path / "out", architecture=Composite())
    assert_same(loaded, model)
    assert not any(module.training for module in loaded.modules())
    assert attention(loaded, "blocks.0") is attention(loaded, "blocks.2")
    assert attention(loaded, "tied").weight is attention(loaded, "blocks.0").weight
    if change is not mixed_dtypes:
        x = composite_input(dtype)
        assert torch.equal(loaded(x), model(x))


@settings(max_examples=15)
@given(st.lists(conv_specs(), min_size=3, max_size=5))
def test_every_geometry_comes_back(specs: list[ConvSpec]) -> None:
    model, fresh = (nn.Sequential(*map(convolution_of, specs)) for _ in range(2))
    converted = convert_model(model).model
    with tempfile.TemporaryDirectory() as parent:
        save_converted(converted, Path(parent, "out"))
        assert_same(load_converted(Path(parent, "out"), architecture=fresh), converted)


@pytest.mark.parametrize(
    "change",
    [lambda layer: layer.add_content(2), lambda layer: layer.set_axis_scores(torch.randn(6, 17), torch.randn(6, 21))],
)
def test_a_root_that_was_a_convolution_comes_back_with_content_and_with_learned_tables(
    change: Callable[[Any], None], tmp_path: Path
) -> None:
    layer = attention_from_conv(nn.Conv2d(4, 6, (2, 3), groups=2))
    change(layer)
    save_converted(layer, tmp_path / "out")
    assert_same(load_converted(tmp_path / "out", architecture=nn.Conv2d(4, 6, (2, 3), groups=2)), layer.eval())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_project_s_own_examples_load_without_an_architecture(name: str, tmp_path: Path) -> None:
    model = convert_model(load_example(name)).model
    (own,) = (spec for spec in OWN_ARCHITECTURES if name in spec.rpartition(":")[2])
    save_converted(model, tmp_path / "out", architecture=Architecture(own))
    assert_same(load_converted(tmp_path / "out"), model)


# What is refused while writing


@pytest.mark.parametrize(
    ("model", "architecture", "reason"),
    [
        (nn.Sequential(nn.Conv2d(2, 3, 1)), None, "no self-attention layer"),
        (convert_model(nn.Conv2d(2, 3, 1)).model, Architecture("a:b", {"p": math.nan}), "cannot be written as JSON"),
        (Composite(), Composite, r"'FILE.py:Composite'; got the class Composite$"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(
    model: nn.Module, architecture: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=reason):
        save_converted(model, tmp_path / "out", architecture=architecture)
    assert list(tmp_path.iterdir()) == []


# What is refused while reading


def changed(**modules: nn.Module) -> nn.Module:
    model = Composite()
    for name, module in modules.items():
        setattr(model, name, module)
    return model


class Flipped(nn.Conv2d):
    """A convolution that computes something else."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flip(-1))


def configured(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    return lambda saved: edit(saved, change)


def cut(saved: Path) -> None:
    (saved / WEIGHTS).write_bytes((saved / WEIGHTS).read_bytes()[:-1])


STEM = nn.Conv2d(2, 4, (2, 3), stride=(2, 1), padding=(1, 0))
REFUSED: list[tuple[Callable[[Path], object], Any, str]] = [
    (configured(lambda config: config.update(format="other")), Composite(), "is not a converted model"),
    (configured(lambda config: config.update(format_version=5)), Composite(), r"has format version 5; .* reads 4"),
    (configured(lambda config: config["tensors"].pop()), Composite(), "lists other tensors"),
    (configured(lambda config: config["layers"][0].update(engine="fast")), Composite(), "there is no engine 'fast'"),
    (configured(lambda config: config["layers"][0]["spec"].update(stride=[1, 1])), Composite(), "layer stem is"),
    (cut, Composite(), WEIGHTS),
    (lambda saved: (saved / CONFIG).write_bytes(b"{"), Composite(), "is not JSON"),
    (id, changed(stem=STEM), "layer stem is"),
    (id, changed(stem=Flipped(2, 4, (2, 3), (1, 2), (1, 0))), "attention layers that the architecture lacks: stem"),
    (id, changed(head=nn.Identity()), " keys fit, missing 0, left over 2: it holds 'head.weight'"),
    (id, changed(extra=nn.Conv2d(4, 4, (1, 2))), "fit, missing 2, left over 0: 'extra.weight' is missing"),
    (id, Composite, r"got the class Composite: pass Composite\(\)$"),
]


@pytest.mark.parametrize(("damage", "architecture", "reason"), REFUSED)
def test_a_damaged_folder_or_one_of_another_network_is_refused_with_the_reason(
    damage: Callable[[Path], object], architecture: Any, reason: str, saved: Path
) -> None:
    damage(saved)
    with pytest.raises(ConversionError, match=reason):
        load_converted(saved, architecture=architecture)


def test_weights_that_the_system_does_not_give_are_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(files: object) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(folder, "digest", failing)
    with pytest.raises(CheckpointError, match=rf"{WEIGHTS} cannot be read: Input/output error"):
        load_converted(saved, architecture=Composite())


@pytest.mark.parametrize(
    "spec",
    [
        "{folder}/theirs.py:factory",
        "theirs:factory",
        "conv2attn.convert.examples.networks:theirs.py:factory",
        "conv2attn.convert.examples.networks:torch.os.mkdir",
    ],
)
def test_an_architecture_that_the_folder_chose_is_not_built(
    spec: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from pathlib import Path\nPath('trace').mkdir()\ndef factory(**arguments): Path('trace').mkdir()\n"
    monkeypatch.chdir(saved)
    monkeypatch.syspath_prepend(saved)
    for name in ("theirs.py", "conv2attn.convert.examples.networks:theirs.py"):
        (saved / name).write_text(code)
    chosen = {"spec": spec.format(folder=saved), "arguments": {"path": "trace"}}
    edit(saved, lambda config: config.update(architecture=chosen))
    with pytest.raises(TrustNeededError, match="would run code that a file chose"):
        load_converted(saved)
    assert list(open_network(saved).cnn_state()) == list(Composite().state_dict())
    assert not (saved / "trace").exists()
    assert "theirs" not in sys.modules
    load_converted(saved, architecture=Composite())


# Which architecture a folder takes


HERE = Architecture("tests.small_models:Composite")


def test_a_folder_of_a_network_needs_its_architecture_which_only_the_user_names(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ArchitectureNeededError, match="describes its layers, but not how the network connects them"):
        load_converted(saved)
    loaded = load_converted(saved, architecture=HERE)
    assert_same(loaded, load_converted(saved, architecture=Composite()))
    save_converted(loaded, tmp_path / "named", architecture=HERE)
    told = "named names the architecture tests.small_models:Composite, which would run code that a file chose"
    cure = r"trust=True runs it, architecture=MyNet\(\) takes a network of yours instead"
    with pytest.raises(TrustNeededError, match=f"{told}; {cure}$"):
        load_converted(tmp_path / "named")
    opened = open_network(tmp_path / "named")
    assert (opened.is_layers, opened.architecture) == (True, None)
    assert_same(load_converted(tmp_path / "named", trust=True), loaded)


# The CNN's state dict comes back from a folder, and is written as the file's name says


def network() -> Composite:
    torch.manual_seed(0)
    return Composite().eval()


def converted(*moved: str) -> nn.Module:
    """The converted network; the first head of the layers that are named looks half a pixel aside."""
    model = convert_model(network()).model
    for name in moved:
        move_center(attention(model, name), 0, 0.5)
    return model


def write(folder: Path, *moved: str) -> Path:
    """A folder of the converted network."""
    save_converted(converted(*moved), folder, architecture=HERE)
    return folder


def assert_the_cnn_s(state: dict[str, Tensor]) -> None:
    expected = network().state_dict()
    assert list(state) == list(expected)
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


def test_a_folder_gives_the_cnn_s_weights_and_has_no_average_and_layers_alone_their_own(tmp_path: Path) -> None:
    found = open_network(write(tmp_path / "out"))
    assert_the_cnn_s(found.cnn_state())
    assert found.files[:2] == (tmp_path / "out/config.json", tmp_path / "out/model.safetensors")
    assert found.content == "network"
    with pytest.raises(OptionError, match="keeps one set of weights"):
        open_network(tmp_path / "out", Opening(ema=True))
    described = DescribedConvolution("w", None, attention(converted(), "tied").spec)
    tree = layer_tree({"stem": described}, {"w": torch.ones(4, 2, 3, 2)})
    save_converted(convert_model(tree).model, tmp_path / "layers", architecture=HERE)
    layers = open_network(tmp_path / "layers")
    assert (layers.content, list(layers.cnn_state())) == ("layers", ["stem.weight"])
    loaded = load_converted(str(tmp_path / "layers"))  # which needs no architecture
    assert isinstance(loaded, Layers)
    assert torch.equal(attention(loaded, "stem").weight, torch.ones(4, 2, 3, 2))


def test_layers_that_compute_what_no_convolution_computes_are_all_told_with_their_distance(tmp_path: Path) -> None:
    folder, model = write(tmp_path / "out", "stem", "tied"), converted("stem", "tied")
    with pytest.raises(NotAConvolutionError, match="2 of 4 attention layers compute what no convolution") as caught:
        open_network(folder).cnn_state()
    for name in ("stem", "tied"):
        assert f"{name}: the centre of head 0 is at" in str(caught.value)
        assert describe_distance(attention(model, name)) in str(caught.value)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_restored_file_holds_the_cnn_and_replaces_another_only_if_told(suffix: str, tmp_path: Path) -> None:
    folder, out, expected = write(tmp_path / "out"), tmp_path / f"r{suffix}", network().state_dict()
    assert restore_file(folder, out).data["tensors"] == list(expected)
    written = load_file(out) if suffix == ".safetensors" else torch.load(out)
    assert written.keys() == expected.keys()
    assert_the_cnn_s({name: written[name] for name in expected})
    if suffix != ".safetensors":
        assert written["blocks.0.weight"].data_ptr() == written["blocks.2.weight"].data_ptr()
    with pytest.raises(OutputError, match="exists already; force=True replaces it"):
        restore_file(folder, out)
    restore_file(folder, out, Opening(HERE), force=True)


def test_what_is_read_is_not_written_over_nor_anything_of_an_unknown_kind_before_anything_is_read(
    tmp_path: Path, run: Run
) -> None:
    folder, file, linked = tmp_path / "out", tmp_path / "w.pt", tmp_path / "c.pt"
    folder.mkdir()
    for path in (file, folder / "config.json", folder / "model.safetensors"):
        path.write_bytes(b"damaged")
    linked.hardlink_to(folder / "config.json")
    for source, out in ((file, file), (folder, folder / "model.safetensors"), (folder, linked)):
        assert "would be lost" in run("restore", source, "--out", out, "--force").err
    assert {path.read_bytes() for path in tmp_path.rglob("*.*")} == {b"damaged"}
    for name in ("w.bin", ".pt"):
        assert "must end in .safetensors, .pth, .pt" in run("restore", file, "--out", tmp_path / name).err
