"""Layers that a file describes: a tree by their names, over the file's tensors, loaded layer by layer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.attention.supported import ForeignConvolution
from conv2attn.convert.errors import CheckpointError, ConversionError
from conv2attn.convert.files.layers import Layers, convolution, layer_tree
from conv2attn.convert.files.readers.described import DescribedConvolution
from conv2attn.convert.spec import ConvSpec

SPEC = ConvSpec(1, 2, kernel_size=(1, 3))
WITHOUT = replace(SPEC, bias=False)


def stored(
    weight: str = "w", bias: str | None = "b", spec: ConvSpec | None = SPEC, **said: Any
) -> DescribedConvolution:
    return DescribedConvolution(weight, bias, spec, **said)


def tensors() -> dict[str, Tensor]:
    return {"w": torch.rand(2, 1, 1, 3), "v": torch.rand(2, 1, 1, 3), "b": torch.rand(2), "c": torch.rand(2)}


def tree(names: list[str], given: dict[str, Tensor] | None = None) -> nn.Module:
    """Layers of these names, each over tensors of its own."""
    own = {f"{name}/{key}": value for name in names for key, value in tensors().items()} | (given or {})
    return layer_tree({name: stored(f"{name}/w", f"{name}/b") for name in names}, own)


def convs(model: nn.Module) -> dict[str, nn.Module]:
    found = model.named_modules(remove_duplicate=False)
    return {name: module for name, module in found if isinstance(module, nn.Conv2d)}


# The tree


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
    assert layer_tree({}, {}).state_dict() == {}


def test_names_of_one_geometry_over_the_same_tensors_with_one_note_share_a_module() -> None:
    given = tensors() | {"u": torch.rand(2, 1, 1, 3)}
    given["same"] = given["w"]
    base = stored()
    others = {
        "weight": stored("v"),
        "bias": stored(bias="c"),
        "no bias": stored(bias=None, spec=WITHOUT),
        "geometry": stored(spec=replace(SPEC, stride=(1, 2))),
        "note": stored(note="a note"),
    }
    for name, other in others.items():
        found = convs(layer_tree({"a": base, "b": other}, given))
        assert found["a"] is not found["b"], name
    for other in (base, stored("same"), stored(original="another name")):
        found = convs(layer_tree({"a": base, "b": other}, given))
        assert found["a"] is found["b"]
    bare = convs(layer_tree({"a": stored(bias=None, spec=WITHOUT), "b": stored(bias=None, spec=WITHOUT)}, given))
    assert bare["a"] is bare["b"]


def test_layers_of_no_known_geometry_are_each_their_own_and_say_why() -> None:
    given = {"a": DescribedConvolution.refused("why"), "b": DescribedConvolution.refused("why"), "c": stored(spec=None)}
    found = layer_tree(given, tensors())
    modules = [found.get_submodule(name) for name in given]
    assert all(isinstance(module, ForeignConvolution) for module in modules)
    assert modules[0] is not modules[1]
    assert [module.reason for module in modules] == ["why", "why", "its geometry is not known"]


def test_a_layer_without_a_name_is_the_whole_network_and_the_only_layer() -> None:
    given = tensors()
    assert type(layer_tree({"": stored()}, given)) is nn.Conv2d
    for convolutions in ({"": stored(), "a": stored()}, {"a": stored("v"), "": stored()}):
        with pytest.raises(CheckpointError, match=r"^one of several layers has no name$"):
            layer_tree(convolutions, given)


@pytest.mark.parametrize("lacking", ["w", "b"])
def test_layers_whose_tensors_are_missing_are_named(lacking: str) -> None:
    given = {name: value for name, value in tensors().items() if name != lacking}
    with pytest.raises(CheckpointError, match=r"^the weights of the layer 'a\.b' are missing$"):
        layer_tree({"a.b": stored()}, given)
    if lacking == "b":
        layer_tree({"a.b": stored(bias=None, spec=WITHOUT)}, given)


@pytest.mark.parametrize("depth", [1, 2, 64, 65])
def test_a_name_has_as_many_parts_as_modules_may_lie_in_each_other(depth: int) -> None:
    name = ".".join("abcdefghij"[part % 10] for part in range(depth))
    if depth <= 64:
        assert list(convs(tree([name]))) == [name]
        return
    told = f"the layer {name[:100]!r} lies more than 64 modules deep"
    with pytest.raises(CheckpointError, match=f"^{re.escape(told)}$"):
        tree([name])


@pytest.mark.parametrize("length", [1, 99, 100, 101, 102])
def test_names_within_another_layer_of_another_or_of_no_module_are_refused_shortened(length: int) -> None:
    name = "x" * length
    for names, refused, why in (
        ([name, f"{name}.a"], f"{name}.a", "lies within another layer"),
        ([f"{name}.a", name], name, "holds other layers"),
        ([f"{name}..a"], f"{name}..a", "has a name that no module can have"),
        ([f"{name}."], f"{name}.", "has a name that no module can have"),
        ([f".{name}"], f".{name}", "has a name that no module can have"),
    ):
        with pytest.raises(CheckpointError, match=f"^the layer {re.escape(repr(refused[:100]))} {why}$"):
            tree(names)
    with pytest.raises(CheckpointError, match="has a name that no module can have"):
        tree(["forward"])


# One convolution


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.complex64])
def test_a_convolution_has_the_parameters_that_it_is_given(dtype: torch.dtype) -> None:
    weight, bias = torch.ones(2, 1, 1, 3, dtype=dtype), torch.ones(2, dtype=dtype)
    conv = convolution(SPEC, weight, bias)
    assert conv.bias is not None
    for own, given in ((conv.weight, weight), (conv.bias, bias)):
        assert own.data_ptr() == given.data_ptr()
        assert own.requires_grad == dtype.is_floating_point
    assert not conv.training
    assert convolution(WITHOUT, weight, None).bias is None


@pytest.mark.parametrize(
    ("weight", "bias", "spec"),
    [
        ((2, 1, 1, 4), (2,), SPEC),
        ((1, 2, 1, 3), (2,), SPEC),
        ((2, 1, 1, 3), None, SPEC),
        ((2, 1, 1, 3), (2,), WITHOUT),
        ((2, 1, 1, 3), (3,), SPEC),
        ((2, 1, 1, 3), (2, 1), SPEC),
        ((2, 1, 1, 3), (1,), SPEC),
        ((2, 1, 3), None, WITHOUT),
    ],
)
def test_shapes_are_those_of_the_geometry(weight: Any, bias: Any, spec: ConvSpec) -> None:
    shapes = [list(weight), None if bias is None else list(bias)]
    told = f"weight and bias have the shapes {shapes}, wanted those of the geometry {spec}"
    given = torch.ones(weight), None if bias is None else torch.ones(bias)
    with pytest.raises(CheckpointError, match=f"^{re.escape(told)}$"):
        convolution(spec, *given)
    held = {"w": given[0]} | ({} if given[1] is None else {"b": given[1]})
    with pytest.raises(CheckpointError, match="^layer 'a': " + re.escape(told) + "$"):
        layer_tree({"a": stored(bias=None if bias is None else "b", spec=spec)}, held)


# Loading


def test_layers_compute_nothing_as_a_whole() -> None:
    with pytest.raises(ConversionError, match=r"^only the layers were converted"):
        Layers()(torch.ones(1))
