"""A folder, and every file of a network, holds what the network's modules hold, and gives it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.commands.restore import restore_file
from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.errors import CheckpointError, OutputError, TrustNeededError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.files.state import held_state


class Network(nn.Module):
    """A network whose classes are torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Conv2d(6, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.backbone(x)).mean((2, 3))
        return out


class LeavesOut(Network):
    """Does not save its frozen backbone, as Lightning's documents show."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        return {key: value for key, value in state.items() if not key.startswith("backbone")}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict(state_dict, strict=False, assign=assign)


class PartLeavesOut(nn.Sequential):
    """The part that leaves something out lies inside; what loads it is PyTorch's."""

    def __init__(self) -> None:
        super().__init__(LeavesOut(), nn.Flatten())


class IgnoresItsBackbone(LeavesOut):
    """Loads nothing of its backbone either, and returns nothing."""

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        nn.Module.load_state_dict(self, {k: v for k, v in state_dict.items() if k.startswith("head")}, strict=False)


class Saves(Network):
    """Saves what a function makes of what its modules hold."""

    def __init__(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__()
        self.change = change

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.change(super().state_dict(*args, **kwargs))


class Scale(nn.Module):
    """Keeps its factor, and what it counted, as extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = {"k": 1.0}

    def forward(self, x: Tensor) -> Tensor:
        return x * float(self.state["k"])

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


class Extra(Network):
    """Has a module with extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale(super().forward(x))
        return out


STATE = {"k": 2.5, "shapes": (3, 4), "range": torch.arange(3.0), "names": ["a", None]}


def assert_holds(network: nn.Module, state: dict[str, Any]) -> None:
    held = held_state(network)
    assert list(held) == list(state)
    assert all(torch.equal(held[key], value) for key, value in state.items() if isinstance(value, Tensor))


@pytest.mark.parametrize("kind", [LeavesOut, PartLeavesOut, IgnoresItsBackbone])
def test_what_a_class_leaves_out_of_its_state_dict_is_in_the_folder(kind: type[nn.Module], tmp_path: Path) -> None:
    cnn = kind().eval()
    state, x = held_state(cnn), torch.randn(2, 3, 5, 7)
    save_converted(convert_model(cnn).model, tmp_path / "out")
    loaded = load_converted(tmp_path / "out", architecture=kind())
    assert torch.equal(loaded(x), cnn(x))
    restore_file(tmp_path / "out", tmp_path / "back.pth")
    back = torch.load(tmp_path / "back.pth")
    assert list(back) == list(state)
    assert all(torch.equal(back[key], value) for key, value in state.items())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda state: {f"net.{key}": value for key, value in state.items()}, "net.head"),
        (lambda state: state | {"head.weight": state["head.weight"].half()}, "head.weight"),
        (lambda state: {**state, "steps": torch.tensor(3)}, "steps"),
    ],
)
def test_a_state_dict_that_is_not_what_the_modules_hold_is_refused(change: Any, key: str, tmp_path: Path) -> None:
    model = convert_model(Saves(change)).model
    with pytest.raises(OutputError, match=key):
        save_converted(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_all_the_weights_of_a_file_reach_a_class_that_loads_them_in_its_own_way(tmp_path: Path) -> None:
    state = Network().state_dict()
    torch.save(state, tmp_path / "w.pth")
    assert_holds(open_network(tmp_path / "w.pth", Opening(LeavesOut())).cnn(), state)
    with pytest.raises(CheckpointError, match=r"does not load 'backbone\.0"):
        open_network(tmp_path / "w.pth", Opening(IgnoresItsBackbone()))
    torch.save(LeavesOut().state_dict(), tmp_path / "head.pth")
    with pytest.raises(CheckpointError, match="leaves it out"):
        open_network(tmp_path / "head.pth", Opening(LeavesOut()))


@pytest.mark.parametrize("prefix", ["", "module.", "net._orig_mod."])
def test_extra_state_survives_file_folder_and_restored_file(prefix: str, tmp_path: Path) -> None:
    cnn = Extra().eval()
    cnn.scale.state = STATE
    state = cnn.state_dict()
    torch.save({"state_dict": {f"{prefix}{key}": value for key, value in state.items()}}, tmp_path / "w.pth")
    read = open_network(tmp_path / "w.pth", Opening(Extra())).cnn()
    save_converted(convert_model(read).model, tmp_path / "out")
    loaded = load_converted(tmp_path / "out", architecture=Extra())
    x = torch.randn(2, 3, 5, 7)
    assert torch.equal(loaded(x), cnn(x))
    restore_file(tmp_path / "out", tmp_path / "back.pth")
    back = torch.load(tmp_path / "back.pth")
    assert list(back) == list(state)
    found = back["scale._extra_state"]
    assert torch.equal(found.pop("range"), STATE["range"])  # type: ignore[arg-type]
    assert found == {key: value for key, value in STATE.items() if key != "range"}
    with pytest.raises(OutputError, match=r"scale\._extra_state"):
        restore_file(tmp_path / "out", tmp_path / "back.safetensors")


def test_extra_state_is_loaded_as_strictly_as_pytorch_loads_it(tmp_path: Path) -> None:
    torch.save(Network().state_dict(), tmp_path / "without.pth")
    with pytest.raises(CheckpointError, match=r"'scale\._extra_state' is missing"):
        open_network(tmp_path / "without.pth", Opening(Extra()))
    torch.save(Extra().state_dict(), tmp_path / "with.pth")
    network = Extra()
    network.scale = nn.ReLU()  # type: ignore[assignment]
    with pytest.raises(CheckpointError, match=r"scale\._extra_state"):
        open_network(tmp_path / "with.pth", Opening(network))


class Foreign:
    """A class of somebody's own."""


def test_extra_state_of_other_classes_is_refused_by_name(tmp_path: Path) -> None:
    cnn = Extra()
    cnn.scale.state = {"k": 1.0, "range": Foreign()}
    torch.save(cnn.state_dict(), tmp_path / "w.pth")
    with pytest.raises(TrustNeededError, match=r"scale\._extra_state"):
        open_network(tmp_path / "w.pth", Opening(Extra()))
    read = open_network(tmp_path / "w.pth", Opening(Extra(), trust=True)).cnn()
    with pytest.raises(OutputError, match=r"scale\._extra_state"):
        save_converted(convert_model(read).model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Classes that translate what older versions of theirs wrote are told the version, as PyTorch tells them


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


def versioned() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.Conv2d(4, 2, 1)).eval()


def loaded_by_torch(state: Any) -> dict[str, Tensor]:
    wanted = versioned()
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
    state = version(versioned().state_dict(), number)
    torch.save(PLACES[place](state), tmp_path / "w.pth")
    found = open_network(tmp_path / "w.pth", Opening(versioned())).cnn().state_dict()
    expected = loaded_by_torch(state)
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_a_folder_and_the_file_that_is_restored_of_it_keep_the_version(tmp_path: Path) -> None:
    cnn = versioned()
    save_converted(convert_model(cnn).model, tmp_path / "out")
    again = load_converted(tmp_path / "out", architecture=versioned())
    assert torch.equal(again.get_parameter("0.conv.weight"), cnn.get_parameter("0.conv.weight"))
    restore_file(tmp_path / "out", tmp_path / "w.pth")
    state = torch.load(tmp_path / "w.pth", weights_only=True)
    assert torch.equal(loaded_by_torch(state)["0.conv.weight"], cnn.get_parameter("0.conv.weight"))


def test_a_pickled_network_is_of_its_classes_own_version(tmp_path: Path) -> None:
    net = versioned()
    torch.save(net, tmp_path / "m.pth")
    found = open_network(tmp_path / "m.pth", Opening(versioned())).cnn().state_dict()
    assert all(torch.equal(found[key], value) for key, value in net.state_dict().items())
