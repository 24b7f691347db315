"""A folder, and every file of a network, holds what the network's modules hold, and gives it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.commands.restore import restore_file
from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.errors import CheckpointError, OutputError, TrustNeededError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.state import held_state
from conv2attn.convert.files.weights import Opening


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


class Renames(Network):
    """Puts a prefix before its keys."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {f"net.{key}": value for key, value in super().state_dict(*args, **kwargs).items()}


class Casts(Network):
    """Saves half of its weights' precision."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        return {key: value.half() if value.is_floating_point() else value for key, value in state.items()}


class Adds(Network):
    """Saves a number that no module holds."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {**super().state_dict(*args, **kwargs), "steps": torch.tensor(3)}


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


@pytest.mark.parametrize(("kind", "key"), [(Renames, "net.head"), (Casts, "head.weight"), (Adds, "steps")])
def test_a_state_dict_that_is_not_what_the_modules_hold_is_refused(
    kind: type[nn.Module], key: str, tmp_path: Path
) -> None:
    model = convert_model(kind()).model
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
