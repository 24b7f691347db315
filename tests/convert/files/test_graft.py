"""Layers from a file take their places in a network, all of them or none."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, convert_model, graft, restore_model, save_converted
from conv2attn.convert.errors import OptionError, UnsupportedLayerError
from conv2attn.convert.files.open import open_network


class Net(nn.Module):
    """Three convolutions, of which one is used twice under two names, and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0))
        self.body = nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1, groups=2), nn.ReLU())
        self.again = self.body[1]
        self.head = nn.Conv2d(4, 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 3, rows, columns] to [batch, 2, ...]."""
        y: Tensor = self.head(self.again(self.body(self.stem(x))))
        return y


@pytest.fixture
def source() -> Net:
    """The network that the layers come from."""
    torch.manual_seed(1)
    return Net().eval()


@pytest.fixture
def folder(source: Net, tmp_path: Path) -> Path:
    """The network's layers alone, converted without its code."""
    torch.save(source, tmp_path / "m.pt")
    converted, report = convert_model(open_network(tmp_path / "m.pt").as_saved())
    save_converted(converted, tmp_path / "layers", report=report)
    return tmp_path / "layers"


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def assert_unchanged(model: nn.Module, before: dict[str, Tensor]) -> None:
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(isinstance(module, SelfAttention2d) for module in model.modules())


def test_a_network_with_the_layers_of_another_computes_what_that_computes(source: Net, folder: Path) -> None:
    torch.manual_seed(2)
    other = Net().eval()
    before = state(other)
    grafted = graft(other, folder)
    assert_unchanged(other, before)
    x = torch.rand(2, 3, 9, 8)
    assert torch.equal(grafted(x), source(x))
    assert not torch.equal(other(x), source(x))
    restored = restore_model(grafted).state_dict()
    assert all(torch.equal(restored[key], value) for key, value in source.state_dict().items())


def test_mode_hooks_sharing_and_gradients_stay_the_networks_own(folder: Path) -> None:
    other, calls = Net().train(), list[str]()
    other.head.weight.requires_grad_(False)
    other.stem.register_forward_hook(lambda *_: calls.append("stem"))
    grafted = graft(other, folder, inplace=True)
    assert grafted is other
    assert grafted.get_submodule("again") is grafted.get_submodule("body.1")
    assert all(module.training for module in grafted.modules())
    assert not grafted.get_parameter("head.weight").requires_grad
    assert grafted.get_parameter("stem.weight").requires_grad
    grafted(torch.rand(1, 3, 9, 8))
    assert calls == ["stem"]


def test_layers_keep_their_alpha_engine_and_content(source: Net, tmp_path: Path) -> None:
    torch.save(source, tmp_path / "m.pt")
    layers = convert_model(open_network(tmp_path / "m.pt").as_saved(), alpha=2.0).model
    stem = layers.get_submodule("stem")
    assert isinstance(stem, SelfAttention2d)
    stem.add_content(3)
    with torch.no_grad():
        for parameter in stem.parameters():
            parameter.add_(torch.rand_like(parameter) / 8)
    head = layers.get_submodule("head")
    assert isinstance(head, SelfAttention2d)
    head.engine = "separable"
    save_converted(layers, tmp_path / "layers")
    grafted = graft(Net().eval(), tmp_path / "layers")
    x = torch.rand(1, 3, 6, 5)
    assert torch.equal(grafted.get_submodule("stem")(x), stem(x))
    found = grafted.get_submodule("head")
    assert isinstance(found, SelfAttention2d)
    assert found.engine == "separable"
    assert torch.equal(found.alpha, head.alpha)


def test_names_tell_where_layers_go(tmp_path: Path) -> None:
    conv = nn.Conv2d(3, 4, 3)
    save_converted(convert_model(conv).model, tmp_path / "one")
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 1)).eval()
    grafted = graft(network, tmp_path / "one", names={"": "0"})
    x = torch.rand(1, 3, 5, 6)
    assert torch.equal(grafted(x), network[1](conv(x)))
    assert type(graft(nn.Conv2d(3, 4, 3), tmp_path / "one")) is SelfAttention2d


class Other(Net):
    """Everything is another than in the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(0, 0))
        self.again = copy.deepcopy(self.again)
        self.body[1] = nn.ReLU()
        del self.head


def test_everything_that_does_not_fit_is_named_at_once_and_nothing_changes(folder: Path) -> None:
    network = Other()
    before = state(network)
    with pytest.raises(UnsupportedLayerError) as caught:
        graft(network, folder, inplace=True)
    reasons = {problem.name: problem.reason for problem in caught.value.problems}
    assert reasons.keys() == {"stem", "body.1", "head"}
    assert re.search(
        r"it is 3x2, 3->4, stride 2x1, with bias in the network; .*padding 1x0.* in the folder", reasons["stem"]
    )
    assert reasons["body.1"] == "it is ReLU there, not a convolution"
    assert reasons["head"] == "the network has no module of this name"
    assert all(reason in str(caught.value) for reason in reasons.values())
    assert_unchanged(network, before)


def changed(change: str) -> Net:
    network = Net()
    if change == "half precision":
        network.half()
    elif change == "a subclass":

        class Padded(nn.Conv2d):
            """Might compute something else."""

        network.head = Padded(4, 2, 1, bias=False)
    elif change == "a bias":
        network.head = nn.Conv2d(4, 2, 1)
    elif change == "a shared module":
        network.extra = network.head
    elif change == "attention":
        network.head = convert_model(network.head).model  # type: ignore[assignment]
    elif change == "one module of two layers":
        network.stem = network.head
    else:
        network.head = nn.Conv1d(4, 2, 1, bias=False)  # type: ignore[assignment]
    return network


CHANGES = {
    "half precision": "stem: its weights are torch.float16 in the network, torch.float32 in the folder",
    "a subclass": "head: it is a subclass of nn.Conv2d",
    "a bias": "head: it is 1x1, 4->2, with bias in the network; 1x1, 4->2, without bias in the folder",
    "a shared module": "head: shared by head, extra, of which only some are selected",
    "attention": "head: it is attention already",
    "one module of two layers": "head: it is one with 'stem' in the network, and another layer in the folder",
    "one axis": "head: ",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_place_that_is_not_the_layers_own_is_refused(change: str, folder: Path) -> None:
    network = changed(change)
    before = state(network)
    with pytest.raises(UnsupportedLayerError, match=re.escape(CHANGES[change])):
        graft(network, folder, inplace=True)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize(
    ("names", "reason"),
    [({"nobody": "stem"}, "lacks 'nobody'"), ({"head": "stem"}, "two layers of .* the place 'stem'")],
)
def test_names_that_name_nothing_or_one_place_twice_are_refused(
    names: dict[str, str], reason: str, folder: Path
) -> None:
    with pytest.raises(OptionError, match=reason):
        graft(Net(), folder, names=names)


def test_a_folder_of_a_network_is_refused(tmp_path: Path) -> None:
    save_converted(convert_model(Net()).model, tmp_path / "network")
    with pytest.raises(OptionError, match="holds a network; load_converted"):
        graft(Net(), tmp_path / "network")
