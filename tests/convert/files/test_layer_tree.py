"""Layers that a file describes: a tree by their names, over the file's tensors, loaded layer by layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.errors import CheckpointError, ConversionError
from conv2attn.convert.files.layers import Layers, layer_tree
from conv2attn.convert.layer.supported import ForeignConvolution
from conv2attn.convert.spec import ConvSpec, DescribedConvolution

SPEC = ConvSpec(1, 2, kernel_size=(1, 3))
WITHOUT = replace(SPEC, bias=False)


def stored(
    weight: str = "w", bias: str | None = "b", spec: ConvSpec | None = SPEC, **said: Any
) -> DescribedConvolution:
    return DescribedConvolution(weight, bias, spec, **said)


def tensors() -> dict[str, Tensor]:
    return {"w": torch.rand(2, 1, 1, 3), "v": torch.rand(2, 1, 1, 3), "b": torch.rand(2), "c": torch.rand(2)}


def convs(model: nn.Module) -> dict[str, nn.Module]:
    found = model.named_modules(remove_duplicate=False)
    return {name: module for name, module in found if isinstance(module, nn.Conv2d)}


def test_each_layer_lies_under_its_name_over_the_tensors_that_are_given() -> None:
    given = tensors()
    convolutions = {"a": stored(), "b.c": stored("v", None, WITHOUT), "b.d.e": stored("v", "c")}
    found = layer_tree(convolutions, given)
    assert type(found) is type(found.get_submodule("b")) is type(found.get_submodule("b.d")) is Layers
    assert list(convs(found)) == ["a", "b.c", "b.d.e"]
    for name, one in convolutions.items():
        conv = found.get_submodule(name)
        assert conv.weight.data_ptr() == given[one.weight].data_ptr()  # type: ignore[operator]
        assert (conv.bias is None) == (one.bias is None)
        assert conv.bias is None or conv.bias.data_ptr() == given[str(one.bias)].data_ptr()  # type: ignore[operator]
        assert not conv.training
    with pytest.raises(ConversionError, match=r"^only the layers were converted"):
        found(torch.ones(1))


def test_names_of_one_geometry_over_the_same_tensors_with_one_note_share_a_module() -> None:
    given = tensors()
    given["same"] = given["w"]
    strided = stored(spec=replace(SPEC, stride=(1, 2)))
    for other in (stored("v"), stored(bias="c"), stored(bias=None, spec=WITHOUT), strided, stored(note="a note")):
        found = convs(layer_tree({"a": stored(), "b": other}, given))
        assert found["a"] is not found["b"], other
    for other in (stored(), stored("same"), stored(original="another name")):
        found = convs(layer_tree({"a": stored(), "b": other}, given))
        assert found["a"] is found["b"]


def test_layers_of_no_known_geometry_are_each_their_own_and_say_why() -> None:
    found = layer_tree({name: DescribedConvolution.refused("why") for name in "ab"}, tensors())
    modules = [found.get_submodule(name) for name in "ab"]
    assert all(isinstance(module, ForeignConvolution) and module.reason == "why" for module in modules)
    assert modules[0] is not modules[1]


REFUSED: list[tuple[dict[str, DescribedConvolution], str]] = [
    ({"": stored(), "a": stored()}, "has a name that no module can have"),
    ({"a.b": stored("u")}, "the weights of the layer 'a.b' are missing"),
    ({"a": stored(spec=replace(SPEC, kernel_size=(1, 4)))}, "layer 'a': weight and bias have the shapes"),
]


@pytest.mark.parametrize(("convolutions", "words"), REFUSED)
def test_layers_that_make_no_tree_are_refused_by_name(
    convolutions: dict[str, DescribedConvolution], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        layer_tree(convolutions, tensors())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
def test_a_layer_without_a_name_is_the_whole_network_in_the_precision_of_its_tensors(dtype: torch.dtype) -> None:
    conv = layer_tree({"": stored()}, {name: value.to(dtype) for name, value in tensors().items()})
    assert type(conv) is nn.Conv2d
    assert {parameter.dtype for parameter in conv.parameters()} == {dtype}
    assert {parameter.requires_grad for parameter in conv.parameters()} == {dtype.is_floating_point}
