"""A node is what onnx writes of it: what is read of every node, what of a wanted one, and which of two counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import AttributeProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto, helper
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.onnx.nodes import Node, attribute_name, read_node
from conv2attn.convert.files.readers.onnx.protobuf import Message
from tests.hostile.bombs import field

ATTRIBUTE = 5  # the field of a node


@pytest.fixture
def message(tmp_path: Path) -> Any:
    """A message of so many bytes, behind others in its file."""

    def describe(content: bytes) -> Message:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(b"before" + content + b"behind")
        return Message(Source(path), 6, 6 + len(content))

    return describe


def no_file(name: str) -> Source:
    raise AssertionError(f"opened {name}")


def read(message: Message, bound: dict[str, Message] | None = None, *, wanted: bool = True) -> Node:
    return read_node(message, bound or {}, lambda node: wanted, no_file)


def node_of(*attributes: bytes, **fields: Any) -> bytes:
    return bytes(NodeProto(**fields).SerializeToString()) + b"".join(
        field(ATTRIBUTE, content) for content in attributes
    )


def numbers(tensor: StoredTensor | OddTensor) -> Tensor:
    assert isinstance(tensor, StoredTensor)
    return tensor.read()


def attribute(name: str, value: Any) -> bytes:
    return bytes(helper.make_attribute(name, value).SerializeToString())


FULL = {
    "op_type": "Conv",
    "domain": "own",
    "overload": "third",
    "name": "first",
    "input": ["x", "", "b"],
    "output": ["y", "z"],
    "metadata_props": [StringStringEntryProto(key="k", value="v"), StringStringEntryProto(key="l")],
}


def test_a_wanted_node_is_read_whole(message: Any) -> None:
    whole = message(node_of(attribute("group", 3), **FULL))
    node = read(whole)
    assert (node.operator, node.domain, node.overload, node.name) == ("Conv", "own", "third", "first")
    assert (node.inputs, node.outputs, node.attributes) == (["x", "", "b"], ["y", "z"], {"group": 3})
    assert [[entry.text(part) for part in entry.fields()] for entry in node.metadata] == [["k", "v"], ["l"]]
    assert node.span == (whole.start, whole.end)
    assert [node.input(number) for number in range(5)] == ["x", "", "b", "", ""]


def test_of_other_nodes_the_operator_the_outputs_and_the_graphs_are_read(message: Any) -> None:
    graph = GraphProto(name="inner")
    whole = message(node_of(attribute("then", graph), attribute("group", 3), **FULL))
    node = read(whole, wanted=False)
    assert (node.operator, node.domain, node.overload, node.name) == ("Conv", "own", "third", "first")
    assert (node.outputs, node.span) == (["y", "z"], (whole.start, whole.end))
    assert (node.inputs, node.attributes, node.tensors, node.messages, node.metadata) == ([], {}, {}, {}, [])
    assert [name for name, _ in node.graphs] == ["then"]


def test_whether_a_node_is_wanted_is_asked_of_what_is_read_of_all(message: Any) -> None:
    asked: list[tuple[object, ...]] = []

    def wanted(node: Node) -> bool:
        asked.append((node.operator, node.domain, node.overload, list(node.outputs), list(node.inputs)))
        return False

    read_node(message(node_of(**FULL)), {}, wanted, no_file)
    assert asked == [("Conv", "own", "third", ["y", "z"], [])]


@pytest.mark.parametrize(("domain", "found"), [("", ""), ("ai.onnx", ""), ("ai.onnx.ml", "ai.onnx.ml"), ("a", "a")])
def test_onnx_has_two_names_for_its_own_operators(domain: str, found: str, message: Any) -> None:
    assert read(message(node_of(op_type="Conv", domain=domain))).domain == found


def test_a_node_that_says_nothing_is_empty(message: Any) -> None:
    node = Node()
    assert (node.operator, node.domain, node.overload, node.name, node.span) == ("", "", "", "", (0, 0))
    assert (node.inputs, node.outputs, node.graphs, node.metadata) == ([], [], [], [])
    assert (node.attributes, node.tensors, node.messages) == ({}, {}, {})
    assert node.input(0) == ""
    read_empty = read(message(b""))
    assert read_empty.span == (6, 6)
    assert (read_empty.operator, read_empty.outputs) == ("", [])


@pytest.mark.parametrize(("number", "name"), [(3, "name"), (4, "operator"), (7, "domain"), (8, "overload")])
def test_the_last_of_three_texts_counts(number: int, name: str, message: Any) -> None:
    texts = b"".join(field(number, text) for text in (b"one", b"two", b"three"))
    assert getattr(read(message(texts)), name) == "three"


def test_attributes_hold_numbers_texts_and_tensors(message: Any) -> None:
    given: dict[str, Any] = {"i": -7, "s": "text", "ints": [3, -1, 2**40], "f": 0.5, "floats": [1.5, -2.0, 3.0]}
    tensor = helper.make_tensor("t", TensorProto.INT64, [2], [5, 6])
    node = read(message(node_of(*[attribute(*entry) for entry in given.items()], attribute("value", tensor))))
    assert node.attributes == {"i": -7, "s": "text", "ints": [3, -1, 2**40]}
    found = {name: numbers(held) for name, held in node.tensors.items()}
    assert {name: held.tolist() for name, held in found.items()} == {
        "f": 0.5,
        "floats": [1.5, -2.0, 3.0],
        "value": [5, 6],
    }
    assert [held.dtype for held in found.values()] == [torch.float32, torch.float32, torch.int64]
    assert list(node.messages) == ["i", "s", "ints", "f", "floats", "value"]
    assert [attribute_name(held) for held in node.messages.values()] == list(node.messages)
    assert node.graphs == []


def test_an_attribute_that_is_an_integer_is_told_from_one_that_is_not(message: Any) -> None:
    node = read(message(node_of(attribute("i", 7), attribute("zero", 0), attribute("s", "7"), attribute("l", [7]))))
    assert [node.integer(name, 3) for name in ("i", "zero", "s", "l", "other")] == [7, 0, None, None, 3]


def test_attributes_hold_one_graph_or_several(message: Any) -> None:
    names = ["a", "b", "c"]
    graphs = [GraphProto(name=name) for name in names]
    node = read(message(node_of(attribute("one", graphs[0]), attribute("more", graphs[1:]), attribute("i", 1))))
    assert [name for name, _ in node.graphs] == ["one", "more", "more"]
    assert [[held.text(part) for part in held.fields()] for _, held in node.graphs] == [[name] for name in names]
    assert node.attributes == {"i": 1}


def test_integers_may_be_packed_in_parts(message: Any) -> None:
    packed = field(1, b"ints") + field(8, bytes([1, 2])) + bytes([8 << 3, 3]) + field(8, bytes([4]))
    assert read(message(node_of(packed))).attributes == {"ints": [1, 2, 3, 4]}


def single(*values: float) -> list[bytes]:
    """Numbers in single precision as a file holds them."""
    return [torch.tensor(value).numpy().tobytes() for value in values]


def test_floating_point_numbers_may_be_packed_in_parts(message: Any) -> None:
    one, two, three = single(1.0, 2.0, 3.0)
    packed = field(1, b"floats") + field(7, one + two) + bytes([7 << 3 | 5]) + three
    node = read(message(node_of(packed)))
    assert numbers(node.tensors["floats"]).tolist() == [1.0, 2.0, 3.0]


def test_the_last_of_three_values_of_an_attribute_counts(message: Any) -> None:
    name = field(1, b"wrong") + field(1, b"other") + field(1, b"a")
    for content, found in (
        (b"".join(bytes([3 << 3, number]) for number in (1, 2, 3)), 3),
        (b"".join(field(4, text) for text in (b"x", b"y", b"z")), "z"),
    ):
        node = read(message(node_of(name + content)))
        assert (node.attributes, list(node.messages)) == ({"a": found}, ["a"])
        assert attribute_name(message(name + content)) == "a"
    content = b"".join(bytes([2 << 3 | 5]) + number for number in single(1.0, 2.0, 3.0))
    assert numbers(read(message(node_of(name + content))).tensors["a"]).item() == 3.0


@pytest.mark.parametrize(("number", "part"), [(5, TensorProto(dims=[1])), (6, GraphProto(name="g"))])
@pytest.mark.parametrize("wanted", [True, False])
def test_an_attribute_of_two_tensors_or_two_graphs_is_refused(
    number: int, part: TensorProto | GraphProto, wanted: bool, message: Any
) -> None:
    """Other readers merge them to one."""
    content = field(1, b"a") + field(number, part.SerializeToString()) * 2
    with pytest.raises(CheckpointError, match="gives a node's attribute 'a' twice"):
        read(message(node_of(content)), wanted=wanted)


def test_an_attribute_of_the_type_of_integers_without_one_is_zero(message: Any) -> None:
    """As it is to all who write and read 0 as nothing."""
    integer = AttributeProto(name="a", type=AttributeProto.INT)
    assert read(message(node_of(integer.SerializeToString()))).attributes == {"a": 0}
    integer.i = 5
    assert read(message(node_of(integer.SerializeToString()))).attributes == {"a": 5}
    for kind in (AttributeProto.UNDEFINED, AttributeProto.INTS, AttributeProto.STRING):
        other = AttributeProto(name="a", type=kind)
        assert read(message(node_of(other.SerializeToString()))).attributes == {}


def test_an_attribute_of_a_type_that_the_standard_does_not_have_is_refused(message: Any) -> None:
    """Other readers keep the type before it."""
    content = field(1, b"a") + bytes([20 << 3 & 127 | 128, 1, 2, 20 << 3 & 127 | 128, 1, 15])
    with pytest.raises(CheckpointError, match="holds the number 15 where the standard knows no such one"):
        read(message(node_of(content)))


def test_a_text_of_an_attribute_may_be_any_bytes(message: Any) -> None:
    assert read(message(node_of(field(1, b"a") + field(4, b"SAME\xff")))).attributes == {"a": "SAME\ufffd"}


def test_a_floating_point_number_takes_four_bytes(message: Any) -> None:
    for content in (bytes([2 << 3, 1]), bytes([2 << 3 | 1]) + bytes(8)):
        with pytest.raises(CheckpointError, match="is damaged or incomplete: it is no protocol buffer"):
            read(message(node_of(field(1, b"f") + content)))


def test_an_attribute_without_a_name_has_an_empty_one(message: Any) -> None:
    content = bytes([3 << 3, 5])
    assert read(message(node_of(content))).attributes == {"": 5}
    assert attribute_name(message(content)) == ""
    assert attribute_name(message(b"")) == ""
    assert attribute_name(message(field(4, b"text"))) == ""


def test_an_attribute_that_is_given_twice_is_refused_by_name(message: Any) -> None:
    long = "n" * 101
    twice = f"gives a node's attribute '{long[:100]}' twice"
    for attributes in (
        [attribute(long, 1), attribute(long, 1)],
        [attribute(long, 1), attribute(long, "s")],
        [attribute(long, 1) + bytes([2 << 3 | 5, 0, 0, 0, 0])],
        [attribute(long, 1) + field(4, b"s") + field(8, b"\1")],
    ):
        assert read(message(node_of(*attributes)), wanted=False).messages == {}
        with pytest.raises(CheckpointError, match=twice):
            read(message(node_of(*attributes)))


def reference(name: str, to: str) -> bytes:
    return bytes(AttributeProto(name=name, ref_attr_name=to).SerializeToString())


def test_an_attribute_that_refers_to_one_of_its_function_says_what_that_does(message: Any) -> None:
    outer = message(attribute("outer", [1, 2]))
    node = read(message(node_of(reference("inner", "outer"))), {"outer": outer})
    assert node.attributes == {"inner": [1, 2]}
    assert node.messages == {"inner": outer}
    assert read(message(node_of(reference("inner", "outer")))).messages == {}
    with_a_value = reference("inner", "outer") + bytes([3 << 3, 5])
    assert read(message(node_of(with_a_value))).attributes == {}
    named_thrice = reference("inner", "more") + reference("inner", "less") + reference("inner", "outer")
    assert read(message(node_of(named_thrice)), {"outer": outer}).attributes == {"inner": [1, 2]}


def test_an_attribute_that_refers_to_a_function_outside_any_is_refused(message: Any) -> None:
    """ONNX Runtime takes its value, and this reader the function's."""
    long = "n" * 101
    told = f"lets a node's attribute '{long[:100]}' refer to one of a function, outside any"
    for is_wanted in (lambda node: True, lambda node: False):
        with pytest.raises(CheckpointError, match=told):
            read_node(message(node_of(reference(long, "outer"))), None, is_wanted, no_file)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_graph_of_an_attribute_that_refers_to_one_of_its_function_is_not_walked(wanted: bool, message: Any) -> None:
    content = AttributeProto(name="then", ref_attr_name="outer", g=GraphProto(name="g")).SerializeToString()
    assert read(message(node_of(content)), wanted=wanted).graphs == []


def test_an_attribute_that_refers_and_another_of_its_name_are_refused(message: Any) -> None:
    given = message(attribute("outer", [1, 2]))
    for other in (reference("inner", "outer"), attribute("inner", 1)):
        with pytest.raises(CheckpointError, match="'inner' twice"):
            read(message(node_of(reference("inner", "outer"), other)), {"outer": given})


def test_an_attribute_that_refers_to_nothing_has_its_own_value(message: Any) -> None:
    described = node_of(reference("a", "") + bytes([3 << 3, 5]))
    assert read(message(described)).attributes == {"a": 5}
    assert read_node(message(described), None, lambda node: True, no_file).attributes == {"a": 5}


def test_only_a_wanted_node_is_paid_for(message: Any) -> None:
    spent = []
    for is_wanted in (False, True):
        described = message(node_of(op_type="Conv"))
        before = described.source.budget.memory
        read(described, wanted=is_wanted)
        spent.append(before - described.source.budget.memory)
    assert spent[1] - spent[0] == 400
