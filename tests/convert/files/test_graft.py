"""Layers from a file take their places in a network, all of them or none."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConvSpec, SelfAttention2d, convert_model, graft, restore_model, save_converted
from conv2attn.convert.errors import OptionError, UnsupportedLayerError
from conv2attn.convert.files.layers import layer_tree
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.readers.described import DescribedConvolution
from tests.small_models import Composite, assert_same_state, attention, composite_input


@pytest.fixture
def source() -> Composite:
    """The network that the layers come from."""
    torch.manual_seed(1)
    return Composite().eval()


@pytest.fixture
def folder(source: Composite, tmp_path: Path) -> Path:
    """The network's layers alone, converted without its code."""
    torch.save(source, tmp_path / "m.pt")
    converted, report = convert_model(open_network(tmp_path / "m.pt").as_saved())
    save_converted(converted, tmp_path / "layers", report=report)
    return tmp_path / "layers"


def assert_unchanged(model: nn.Module, before: nn.Module) -> None:
    assert_same_state(model, before)
    assert [type(module) for module in model.modules()] == [type(module) for module in before.modules()]


def test_a_network_with_the_layers_of_another_computes_what_that_computes(source: Composite, folder: Path) -> None:
    torch.manual_seed(2)
    other = Composite().eval()
    other.head = source.head
    before, x = copy.deepcopy(other), composite_input()
    grafted = graft(other, folder)
    assert_unchanged(other, before)
    assert torch.equal(grafted(x), source(x))
    assert not torch.equal(other(x), source(x))
    assert_same_state(restore_model(grafted), source)


def test_mode_hooks_sharing_and_gradients_stay_the_networks_own(folder: Path) -> None:
    other, calls = Composite().train(), list[str]()
    other.tied.weight.requires_grad_(False)
    other.stem.register_forward_hook(lambda *_: calls.append("stem"))
    grafted = graft(other, folder, inplace=True)
    assert grafted is other
    assert grafted.get_submodule("blocks.0") is grafted.get_submodule("blocks.2")
    assert all(module.training for module in grafted.modules())
    assert not grafted.get_parameter("tied.weight").requires_grad
    assert grafted.get_parameter("stem.weight").requires_grad
    grafted(composite_input())
    assert calls == ["stem"]


def test_layers_keep_their_alpha_engine_and_content(source: Composite, tmp_path: Path) -> None:
    torch.save(source, tmp_path / "m.pt")
    layers = convert_model(open_network(tmp_path / "m.pt").as_saved(), alpha=2.0).model
    stem, tied = attention(layers, "stem"), attention(layers, "tied")
    stem.add_content(3)
    with torch.no_grad():
        for parameter in stem.parameters():
            parameter.add_(torch.rand_like(parameter) / 8)
    tied.engine = "separable"
    save_converted(layers, tmp_path / "layers")
    grafted, x = graft(Composite().eval(), tmp_path / "layers"), torch.rand(1, 2, 6, 5)
    assert torch.equal(attention(grafted, "stem")(x), stem(x))
    assert attention(grafted, "tied").engine == "separable"
    assert torch.equal(attention(grafted, "tied").alpha, tied.alpha)


def test_names_tell_where_layers_go(tmp_path: Path) -> None:
    conv = nn.Conv2d(3, 4, 3)
    save_converted(convert_model(conv).model, tmp_path / "one")
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 1)).eval()
    grafted = graft(network, tmp_path / "one", names={"": "0"})
    x = torch.rand(1, 3, 5, 6)
    assert torch.equal(grafted(x), network[1](conv(x)))
    assert type(graft(nn.Conv2d(3, 4, 3), tmp_path / "one")) is SelfAttention2d


def replaced(**modules: nn.Module) -> Composite:
    """A network with other modules under these names."""
    network = Composite()
    for name, module in modules.items():
        setattr(network, name, module)
    return network


STEM: dict[str, Any] = {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0)}
UNFIT: dict[str, tuple[Callable[[], Composite], str]] = {
    "half precision": (lambda: Composite().half(), "stem: its weights are torch.float16 in the network, torch.float32"),
    "a subclass": (lambda: replaced(stem=type("Padded", (nn.Conv2d,), {})(2, 4, **STEM)), "stem: it is a subclass"),
    "no bias": (
        lambda: replaced(stem=nn.Conv2d(2, 4, **STEM, bias=False)),
        "stem: it is 2x3, 2->4, stride 1x2, padding 1x0, without bias in the network; 2x3, 2->4, stride 1x2, padding "
        "1x0, with bias in the folder",
    ),
    "no module": (lambda: replaced(blocks=nn.ModuleList()), "blocks.0: the network has no module of this name"),
    "attention": (lambda: replaced(stem=convert_model(Composite().stem).model), "stem: it is attention already"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_a_place_that_is_not_the_layers_own_is_refused_and_nothing_changes(kind: str, folder: Path) -> None:
    network = UNFIT[kind][0]()
    before = copy.deepcopy(network)
    with pytest.raises(UnsupportedLayerError, match=re.escape(UNFIT[kind][1])):
        graft(network, folder, inplace=True)
    assert_unchanged(network, before)


def test_everything_that_does_not_fit_is_named_at_once(folder: Path) -> None:
    network = replaced(stem=nn.ReLU(), tied=nn.ReLU())
    network.extra = network.blocks[0]
    with pytest.raises(UnsupportedLayerError) as caught:
        graft(network, folder)
    reasons = {problem.name: problem.reason for problem in caught.value.problems}
    assert reasons.keys() == {"stem", "blocks.0", "blocks.2", "tied"}
    assert reasons["blocks.0"] == "shared by blocks.0, blocks.2, extra, of which only some are selected"
    assert all(str(problem) in str(caught.value) for problem in caught.value.problems)


def test_one_module_in_the_place_of_two_layers_is_refused(tmp_path: Path) -> None:
    save_converted(convert_model(layer_tree(*two_layers())).model, tmp_path / "two")
    shared = nn.Conv2d(1, 2, 1, bias=False)
    network = nn.ModuleDict({"a": shared, "b": shared})
    with pytest.raises(UnsupportedLayerError, match="b: it is one with 'a' in the network, and another layer in the"):
        graft(network, tmp_path / "two")


def two_layers() -> tuple[dict[str, DescribedConvolution], dict[str, Tensor]]:
    spec = ConvSpec(1, 2, (1, 1), bias=False)
    tensors = {name: torch.rand(2, 1, 1, 1) for name in "ab"}
    return {name: DescribedConvolution(name, None, spec) for name in tensors}, tensors


def test_a_folder_of_a_network_is_refused(tmp_path: Path) -> None:
    save_converted(convert_model(Composite()).model, tmp_path / "network")
    with pytest.raises(OptionError, match="holds a network; load_converted"):
        graft(Composite(), tmp_path / "network")
