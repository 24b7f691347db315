"""The layers that convolution nodes make: their names, what is known of them, and which tensors they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED
from conv2attn.convert.files.readers.common.stored import OddTensor, StoredTensor
from conv2attn.convert.files.readers.onnx.found import ConvolutionNode, Found, named_layers
from conv2attn.convert.files.readers.onnx.nodes import Node
from conv2attn.convert.files.readers.onnx.scales import Scales
from conv2attn.convert.files.readers.onnx.scopes import Known, Scope, Unknown

Put = Callable[..., Known]

WEIGHT = torch.arange(24, dtype=torch.float32).view(2, 3, 2, 2)
INTEGERS = torch.arange(-12, 12, dtype=torch.int8).view(2, 3, 2, 2)


def node(operator: str, *inputs: str, **attributes: Any) -> Node:
    return Node(operator, name="n", inputs=list(inputs), outputs=["y"], attributes=attributes)


def numbers(known: Known) -> Tensor:
    assert isinstance(known.tensor, StoredTensor)
    return known.tensor.read()


def layers(
    *found: Found, scales: Scales | None = None, normalised: bool = True
) -> tuple[list[ConvolutionNode], dict[str, StoredConvolution], list[Known]]:
    kept: list[Known] = []
    nodes, named = named_layers(found, scales or Scales(), kept.append, normalised=normalised)
    return nodes, named, kept


def test_layers_have_the_names_of_their_weights_or_of_their_nodes(scope: Scope, put: Put) -> None:
    weight, bias = put("a.weight", WEIGHT), put("b", [1.0, 2.0])
    quantised = put("c.weight_quantized", INTEGERS)
    put("other", WEIGHT)
    inner = Scope(scope._source, "in/", scope)
    nodes, named, kept = layers(
        Found(node("Conv", "x", "a.weight", "b"), "first", scope, is_called=False),
        Found(node("Conv", "x", "a.weight", "b"), "second", scope, is_called=True),
        Found(node("Conv", "x", "a.weight", "b", strides=[2, 2]), "third", scope, is_called=False),
        Found(node("ConvInteger", "x", "c.weight_quantized"), "fourth", inner, is_called=False),
        Found(node("Conv", "x", "other"), "fifth", scope, is_called=False),
        Found(node("Conv", "x", "nothing"), "sixth", scope, is_called=False),
    )
    assert list(named) == ["a", "third", "c", "fifth", "sixth"]
    assert [one.layer for one in nodes] == ["a", "a", "third", "c", "fifth", "sixth"]
    assert [one.is_called for one in nodes] == [False, True, False, False, False, False]
    assert [one.is_nested for one in nodes] == [False, False, False, True, False, False]
    floats = torch.float32
    assert [one.dtype for one in nodes] == [floats, floats, floats, floats, floats, None]
    assert [one.stored for one in nodes] == [named[one.layer] for one in nodes]
    assert kept[:2] == [weight, bias]
    assert [known.origin for known in kept] == ["a.weight", "b"] * 3 + ["c.weight_quantized", "other"]
    assert quantised.origin == "c.weight_quantized"


def test_the_precision_is_that_of_the_weight(scope: Scope, put: Put) -> None:
    put("w", WEIGHT.half())
    put("b", [1.0, 2.0])
    nodes, _, _ = layers(Found(node("Conv", "x", "w", "b"), "n", scope, is_called=False))
    assert nodes[0].dtype == torch.float16


def test_a_weight_that_is_no_plain_tensor_is_not_kept_and_has_no_precision(scope: Scope, put: Put) -> None:
    put("odd", OddTensor("sparse"))
    nodes, named, kept = layers(Found(node("Conv", "x", "odd"), "n", scope, is_called=False))
    assert (nodes[0].dtype, kept, list(named)) == (None, [], ["n"])
    assert ConvolutionNode(nodes[0].node, "n", nodes[0].stored, is_called=False, is_nested=False).dtype is None


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_notes_tell_of_what_may_be_folded_in(has_bias: bool, normalised: bool, scope: Scope, put: Put) -> None:
    put("w", WEIGHT, "noted")
    put("onnx::w", WEIGHT)
    put("b", [1.0, 2.0])
    inputs = ["b"] * has_bias
    nodes, _, _ = layers(
        Found(node("Conv", "x", "w", *inputs), "first", scope, is_called=False),
        Found(node("Conv", "x", "onnx::w", *inputs), "second", scope, is_called=False),
        normalised=normalised,
    )
    is_open = has_bias and not normalised
    first, second = (one.stored.note for one in nodes)
    assert first == (
        "noted; the file leaves open whether the weights have a batch normalisation folded in; if so, the "
        "layer computes both"
        if is_open
        else "noted"
    )
    assert second is not None
    assert second.startswith("the exporter computed the weights")


def test_the_scale_of_a_node_is_found_by_its_number(scope: Scope, put: Put) -> None:
    put("w", INTEGERS)
    scales, factor = Scales(), put("s", 0.5)
    sum_of_second = Unknown("computed by ConvInteger", integers=1)
    scales.follow(Node(operator="Mul"), [sum_of_second, factor])
    found = [Found(node("ConvInteger", "x", "w"), name, scope, is_called=False) for name in ("first", "second")]
    nodes, _, kept = layers(*found, scales=scales)
    notes = [one.stored.note or "" for one in nodes]
    assert [note.startswith(DEQUANTISED) for note in notes] == [False, True]
    assert numbers(kept[1]).tolist() == (INTEGERS * 0.5).tolist()
