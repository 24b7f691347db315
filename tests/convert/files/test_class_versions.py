"""Classes that translate what older versions of theirs wrote are told the version, as PyTorch tells them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.commands.restore import restore_file
from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.weights import Opening


class Block(nn.Module):
    """Version 1 kept its kernels upside down."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x).relu()
        return out

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, told: dict[str, Any], *rest: Any) -> None:
        key = f"{prefix}conv.weight"
        if told.get("version") in (None, 1) and key in state:
            state[key] = state[key].flip(2)
        super()._load_from_state_dict(state, prefix, told, *rest)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.Conv2d(4, 2, 1)).eval()


def loaded_by_torch(state: Any) -> dict[str, Tensor]:
    wanted = network()
    wanted.load_state_dict(state)
    return wanted.state_dict()


def version(state: Any, number: int | None) -> Any:
    """A state dict as a class of that version writes it; None as people copy it, who lose all versions."""
    if number is None:
        return dict(state)
    for told in state._metadata.values():
        told["version"] = number if told is state._metadata["0"] else told.get("version", 1)
    return state


def wrapped(state: Any) -> Any:
    """As DistributedDataParallel and torch.compile wrap a network and a part of it."""
    names = {key: f"module.{key}".replace("module.0.", "module.0._orig_mod.") for key in state}
    made = type(state)((names[key], each) for key, each in state.items())
    own = state._metadata
    told = {"": {}, "module": own[""], "module.0": {"version": 1}, "module.0._orig_mod": own["0"]}
    made._metadata = {**told, "module.1": own["1"]}
    return made


PLACES: dict[str, Callable[[Any], Any]] = {
    "alone": lambda state: state,
    "in a checkpoint": lambda state: {"state_dict": state, "epoch": 1},
    "wrapped": wrapped,
}


@pytest.mark.parametrize(
    ("number", "place"),
    [(number, place) for number in (2, 1, None) for place in PLACES if (number, place) != (None, "wrapped")],
)
def test_weights_are_those_that_load_state_dict_gives(number: int | None, place: str, tmp_path: Path) -> None:
    state = version(network().state_dict(), number)
    torch.save(PLACES[place](state), tmp_path / "w.pth")
    found = open_network(tmp_path / "w.pth", Opening(network())).cnn().state_dict()
    expected = loaded_by_torch(state)
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_a_folder_and_the_file_that_is_restored_of_it_keep_the_version(tmp_path: Path) -> None:
    cnn = network()
    save_converted(convert_model(cnn).model, tmp_path / "out")
    again = load_converted(tmp_path / "out", architecture=network())
    assert torch.equal(again.get_parameter("0.conv.weight"), cnn.get_parameter("0.conv.weight"))
    restore_file(tmp_path / "out", tmp_path / "w.pth")
    state = torch.load(tmp_path / "w.pth", weights_only=True)
    assert torch.equal(loaded_by_torch(state)["0.conv.weight"], cnn.get_parameter("0.conv.weight"))


def test_a_counter_of_one_number_is_read_as_pytorch_reads_it(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    state = net.state_dict()
    state["1.num_batches_tracked"] = torch.tensor([7])
    torch.save(state, tmp_path / "w.pth")
    assert int(open_network(tmp_path / "w.pth", Opening(net)).cnn().state_dict()["1.num_batches_tracked"]) == 7


def test_a_pickled_network_is_of_its_classes_own_version(tmp_path: Path) -> None:
    net = network()
    torch.save(net, tmp_path / "m.pth")
    found = open_network(tmp_path / "m.pth", Opening(network())).cnn().state_dict()
    assert all(torch.equal(found[key], value) for key, value in net.state_dict().items())
