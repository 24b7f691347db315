"""Tensors that are one stay one, from file to file."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.attention.layer import SelfAttention2d
from conv2attn.convert.errors import CheckpointError, OutputError
from conv2attn.convert.files.checkpoint import load_into, read_checkpoint
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.restore import restored_checkpoint, write_state_dict
from tests.hostile.files import entry, write_safetensors

LAYERS = 200


def layers_with_one_weight(*, biases: bool) -> nn.Sequential:
    """Convolutions over one weight of four megabytes."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(1024, 1024, 1, 1))
    convs = [nn.Conv2d(1024, 1024, 1, bias=biases, device="meta") for _ in range(LAYERS)]
    for conv in convs:
        conv.weight = weight
        conv.bias = nn.Parameter(torch.randn(1024)) if biases else None
    return nn.Sequential(*convs)


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size


@pytest.mark.parametrize("biases", [False, True])
def test_layers_that_share_a_weight_are_written_with_one(biases: bool, tmp_path: Path) -> None:
    torch.save(layers_with_one_weight(biases=biases), tmp_path / "m.pt")
    network = open_network(tmp_path / "m.pt")
    conversion = convert_model(network.model, inplace=True)
    save_converted(conversion.model, tmp_path / "out", report=conversion.report)
    assert size(tmp_path / "out") < 2 * size(tmp_path / "m.pt")
    loaded = load_converted(tmp_path / "out")
    assert len({layer.weight.data_ptr() for layer in loaded.modules() if isinstance(layer, SelfAttention2d)}) == 1
    restored = restored_checkpoint(tmp_path / "out").state_dict
    assert restored.keys() == network.checkpoint.state_dict.keys()
    assert all(torch.equal(restored[key], value) for key, value in network.checkpoint.state_dict.items())
    write_state_dict(restored, tmp_path / "r.pth")
    assert size(tmp_path / "r.pth") < 2 * size(tmp_path / "m.pt")
    with pytest.raises(OutputError, match="keeps them shared"):
        write_state_dict(restored, tmp_path / "r.safetensors")
    assert not (tmp_path / "r.safetensors").exists()


def test_layers_of_one_geometry_over_the_same_tensors_are_one_layer(tmp_path: Path) -> None:
    torch.save(layers_with_one_weight(biases=False), tmp_path / "m.pt")
    (layer,) = convert_model(open_network(tmp_path / "m.pt").model, inplace=True).report.layers
    assert len(layer.names) == LAYERS


class Tied(nn.Module):
    """A network with one convolution under two names, and another that shares its weight alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.again = self.first
        self.other = nn.Conv2d(3, 3, 3, stride=2)
        self.other.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """All three."""
        return self.other(self.again(self.first(x)).relu())  # type: ignore[no-any-return]


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_network_with_tied_weights_is_converted_and_restored(suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, out = Tied().eval(), tmp_path / f"r{suffix}"
    save_converted(convert_model(model).model, tmp_path / "out")
    loaded = load_converted(tmp_path / "out", architecture=Tied())
    x = torch.randn(2, 3, 7, 8)
    assert torch.equal(loaded(x), model(x))
    assert loaded.first is loaded.again
    write_state_dict(restored_checkpoint(tmp_path / "out").state_dict, out)
    other = Tied().eval()
    other.load_state_dict(torch.load(out) if suffix == ".pth" else safetensors.torch.load_file(out), strict=True)
    assert torch.equal(other(x), model(x))


def test_what_save_model_of_safetensors_leaves_out_is_put_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, other = Tied().eval(), Tied().eval()
    safetensors.torch.save_model(model, str(tmp_path / "w.safetensors"))
    load_into(other, read_checkpoint(tmp_path / "w.safetensors"))
    x = torch.randn(2, 3, 7, 8)
    assert torch.equal(other(x), model(x))


def test_metadata_that_name_no_tensor_are_metadata(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "1", "conv2attn": "1", "a": "b", "1": "2", "2": "1"}, "1": entry()}
    write_safetensors(tmp_path / "w", header)
    assert read_checkpoint(tmp_path / "w").state_dict.keys() == {"1", "2"}


def test_names_beyond_the_number_of_tensors_that_are_read_are_refused(tmp_path: Path) -> None:
    header = {"__metadata__": {str(number): "w" for number in range(100_000)}, "w": entry((0,), end=0)}
    write_safetensors(tmp_path / "w", header, data=b"")
    with pytest.raises(CheckpointError, match="names for more than 100000 tensors"):
        read_checkpoint(tmp_path / "w")
