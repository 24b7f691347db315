"""A CNN's state dict comes back from a folder or a file of attention, and is written as the file's name says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from conv2attn.commands.restore import restore_file
from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.certificate.distance import describe_distance
from conv2attn.convert.errors import (
    NotAConvolutionError,
    OptionError,
    OutputError,
)
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.layers import layer_tree
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.weights import Opening
from conv2attn.convert.spec import DescribedConvolution
from tests.positions import move_center
from tests.small_models import Composite, attention

HERE = Architecture("tests.small_models:Composite")


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


def test_a_folder_gives_the_cnn_s_weights_and_has_no_average(tmp_path: Path) -> None:
    found = open_network(write(tmp_path / "out"))
    assert_the_cnn_s(found.cnn_state())
    assert found.files[:2] == (tmp_path / "out/config.json", tmp_path / "out/model.safetensors")
    assert found.content == "network"
    with pytest.raises(OptionError, match="keeps one set of weights"):
        open_network(tmp_path / "out", Opening(ema=True))


def test_layers_alone_are_restored_as_convolution_weights_only(tmp_path: Path) -> None:
    described = DescribedConvolution("w", None, attention(converted(), "tied").spec)
    tree = layer_tree({"stem": described}, {"w": torch.ones(4, 2, 3, 2)})
    save_converted(convert_model(tree).model, tmp_path / "layers")
    found = open_network(tmp_path / "layers")
    assert found.content == "layers"
    assert list(found.cnn_state()) == ["stem.weight"]


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


def test_what_is_read_is_not_written_over_which_is_told_before_anything_is_read(tmp_path: Path) -> None:
    folder, file, linked = tmp_path / "out", tmp_path / "w.pt", tmp_path / "c.pt"
    folder.mkdir()
    for path in (file, folder / "config.json", folder / "model.safetensors"):
        path.write_bytes(b"damaged")
    linked.hardlink_to(folder / "config.json")
    for source, out in ((file, file), (folder, folder / "model.safetensors"), (folder, linked)):
        with pytest.raises(OutputError, match=r"would be lost$"):
            restore_file(source, out, force=True)
    assert {path.read_bytes() for path in tmp_path.rglob("*.*")} == {b"damaged"}


@pytest.mark.parametrize("name", ["w.bin", ".pt"])
def test_the_end_of_a_file_s_name_says_what_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in .safetensors, .pth, .pt, which says what kind of file"):
        restore_file(tmp_path / "missing", tmp_path / name)
