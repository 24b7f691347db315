"""Which folders need an architecture, and why layers do not fit into a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, convert_model, graft, load_converted, save_converted
from conv2attn.convert.attention.layer import SelfAttention
from conv2attn.convert.errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    Problem,
    TrustNeededError,
    UnsupportedLayerError,
)
from conv2attn.convert.files.architecture import OWN_ARCHITECTURES, Architecture
from conv2attn.convert.files.layers import Layers


class Net(nn.Module):
    """Two convolutions and state that is no convolution's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Conv2d(2, 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 1, rows, columns] to [batch, 2, rows, columns]."""
        y: Tensor = self.head(self.norm(self.stem(x)))
        return y


HERE = Architecture(f"{__name__}:Net")


def write(folder: Path, model: nn.Module, **said: Any) -> Path:
    save_converted(model, folder, **said)
    return folder


def converted() -> nn.Module:
    torch.manual_seed(0)
    return convert_model(Net().eval()).model


def attention(*arguments: Any, dtype: torch.dtype = torch.float32, **given: Any) -> SelfAttention:
    return attention_from_conv(nn.Conv2d(*arguments, **given).to(dtype))


def layers(**named: nn.Module) -> Layers:
    tree = Layers()
    for name, layer in named.items():
        tree.add_module(name, layer)
    return tree


def problems(network: nn.Module, folder: Path) -> list[Problem]:
    """What keeps layers out of a network."""
    with pytest.raises(UnsupportedLayerError) as caught:
        graft(network, folder)
    found = list(caught.value.problems)
    count = "1 layer does" if len(found) == 1 else f"{len(found)} layers do"
    listed = "; ".join(f"{problem.name or 'the model itself'}: {problem.reason}" for problem in found)
    assert str(caught.value) == f"{count} not fit into the network: {listed}"
    return found


# Loading


@pytest.mark.parametrize("given", [Net, 5, {"spec": "a:b"}])
def test_an_architecture_is_a_network_or_a_recipe(given: Any, tmp_path: Path) -> None:
    told = f"architecture must be a network or an Architecture; got {type(given).__name__}"
    with pytest.raises(ArchitectureError, match=f"^{re.escape(told)}$"):
        load_converted(write(tmp_path / "out", converted()), architecture=given)


@pytest.mark.parametrize("given", [Net(), HERE])
def test_a_network_is_loaded_by_its_architecture_as_it_was_saved(given: Any, tmp_path: Path) -> None:
    model = converted()
    for said in ({}, {"architecture": HERE}):
        loaded = load_converted(write(tmp_path / f"out{len(said)}", model, **said), architecture=given)
        assert type(loaded) is Net
        assert not loaded.training
        assert all(torch.equal(value, model.state_dict()[key]) for key, value in loaded.state_dict().items())
        assert torch.equal(loaded(torch.ones(1, 1, 4, 5)), model(torch.ones(1, 1, 4, 5)))


def test_a_folder_of_a_network_needs_its_architecture_which_only_the_user_names(tmp_path: Path) -> None:
    told = "the folder names no architecture, and holds a network that needs one"
    with pytest.raises(ArchitectureNeededError, match=f"^{re.escape(told)}$"):
        load_converted(write(tmp_path / "none", converted()))
    named = write(tmp_path / "named", converted(), architecture=HERE)
    told = f"{named} names the architecture {HERE.spec}, which would run code that a file chose"
    with pytest.raises(TrustNeededError, match=f"^{re.escape(told)}$"):
        load_converted(named)
    assert load_converted(named, trust=True).state_dict().keys() == converted().state_dict().keys()


def test_a_folder_of_layers_alone_needs_none(tmp_path: Path) -> None:
    given = layers(a=attention(1, 2, 3), b=attention(2, 1, 1))
    for number, said in enumerate(({}, {"architecture": HERE})):
        loaded = load_converted(str(write(tmp_path / f"{number}", given, **said)))
        assert isinstance(loaded, Layers)
        for name in "ab":
            found = loaded.get_submodule(name)
            assert isinstance(found, SelfAttention)
            assert torch.equal(found.weight, given.get_parameter(f"{name}.weight"))


def test_a_folder_of_an_example_network_needs_none(tmp_path: Path) -> None:
    recipe = Architecture(OWN_ARCHITECTURES[0])
    model = convert_model(recipe.build().eval()).model
    loaded = load_converted(write(tmp_path / "out", model, architecture=recipe))
    assert type(loaded) is type(model)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in loaded.state_dict().items())


@pytest.mark.parametrize("given", [None, HERE])
def test_only_folders_that_a_conversion_wrote_are_loaded(given: Architecture | None, tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "w.pt")
    for path in (tmp_path, tmp_path / "w.pt", tmp_path / "missing"):
        with pytest.raises(CheckpointError):
            load_converted(path, architecture=given)


def test_a_module_under_two_names_takes_one_layer_only(tmp_path: Path) -> None:
    shared, layer = nn.Conv2d(1, 1, 3), attention(1, 1, 3)
    both = nn.ModuleDict({"a": shared, "b": shared})
    told = "it is one with 'a' in the network, and another layer in the folder"
    folder = write(tmp_path / "two", layers(a=layer, b=attention(1, 1, 3)))
    assert problems(both, folder) == [Problem("b", told)]
    grafted = graft(both, write(tmp_path / "one", layers(a=layer, b=layer)))
    assert grafted.get_submodule("a") is grafted.get_submodule("b")
    only = problems(both, write(tmp_path / "a", layers(a=layer)))
    assert only == [Problem("a", "shared by a, b, of which only some are selected")]
