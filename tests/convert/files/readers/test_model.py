"""What a walk through a model finds: its tensors, the meaning of every name, its convolutions, and what that takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.stored import Source, StoredTensor
from conv2attn.convert.files.readers.onnx import model as module
from conv2attn.convert.files.readers.onnx.folding import OPEN
from conv2attn.convert.files.readers.onnx.model import read_nodes, read_onnx

Open = Callable[[ModelProto | bytes], Source]
GIVEN = "its weight is an input of its graph, computed when it runs"
NUMBERS = range(1, 32)  # those that fields of ONNX have, and more


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """A file of so many bytes."""

    def write(content: ModelProto | bytes) -> Source:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return Source(path)

    return write


def no_file(name: str) -> Source:
    raise AssertionError(f"opened {name}")


def tensor(name: str, *shape: int) -> TensorProto:
    """A tensor of ones; of the shape [1, 1, 1, 1] by default."""
    sizes = shape or (1, 1, 1, 1)
    return TensorProto(name=name, data_type=1, dims=sizes, raw_data=np.ones(sizes, np.float32).tobytes())


def node(operator: str, inputs: Sequence[str] = (), outputs: Sequence[str] = (), name: str = "", **said: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, name, **said)


def conv(weight: str, name: str = "", **said: Any) -> NodeProto:
    found: NodeProto = node("Conv", ["x", weight], [], name, **said)
    return found


def call(name: str, inputs: Sequence[str] = (), outputs: Sequence[str] = (), label: str = "", **said: Any) -> Any:
    """A node that calls a function of the model."""
    return node(name, inputs, outputs, label, **{"domain": "own", **said})


def function(name: str, nodes: Sequence[NodeProto] = (), domain: str = "own", **said: Any) -> FunctionProto:
    return FunctionProto(name=name, node=nodes, domain=domain, **said)


def graph(*nodes: NodeProto, tensors: Sequence[TensorProto] = (), inputs: Sequence[str] = ()) -> GraphProto:
    return GraphProto(node=nodes, initializer=tensors, input=[ValueInfoProto(name=name) for name in inputs])


def model(
    *nodes: NodeProto,
    tensors: Sequence[TensorProto] = (),
    inputs: Sequence[str] = (),
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    return ModelProto(graph=graph(*nodes, tensors=tensors, inputs=inputs), functions=functions)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def problems(source: Source) -> dict[str, str | None]:
    """Why the convolutions of a model have no geometry, by the names of their layers; None for those that have one."""
    return {name: stored.problem for name, stored in read_onnx(source, no_file)[1].items()}


def names(source: Source) -> list[str]:
    return list(read_onnx(source, no_file)[0])


def spent(source: Source) -> tuple[int, int]:
    """The memory and the steps that reading a model takes."""
    budget = source.budget
    memory, steps = budget.memory, budget.steps
    read_onnx(source, no_file)
    return memory - budget.memory, steps - budget.steps


def assert_refused(source: Source, message: str) -> None:
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{source.path} {message}')}$"):
        read_onnx(source, no_file)


# The model


def test_tensors_and_convolutions_are_found(opened: Open) -> None:
    source = opened(model(conv("k", "first", strides=[2, 3]), conv("none"), tensors=[tensor("k"), tensor("l", 2, 3)]))
    tensors, layers = read_onnx(source, no_file)
    assert list(tensors) == ["k", "l"]
    shapes = [found.shape for found in tensors.values() if isinstance(found, StoredTensor)]
    assert shapes == [(1, 1, 1, 1), (2, 3)]
    assert list(layers) == ["first", "Conv_1"]
    first = layers["first"]
    assert first.spec is not None
    assert (first.weight, first.bias, first.spec.stride, first.problem) == ("k", None, (2, 3), None)
    assert layers["Conv_1"].problem == "its weight is computed or not in the file"
    nodes = read_nodes(source, no_file)
    assert [found.layer for found in nodes] == ["first", "Conv_1"]
    assert [found.stored for found in nodes] == list(layers.values())
    assert [found.node.name for found in nodes] == ["first", ""]
    assert [(found.is_called, found.is_nested) for found in nodes] == [(False, False)] * 2


def test_a_layer_whose_name_no_module_can_have_gets_another_and_keeps_its_own(opened: Open) -> None:
    source = opened(model(*(conv("none", name) for name in ("a/Conv", "b b", "c"))))
    layers = read_onnx(source, no_file)[1]
    assert {name: stored.original for name, stored in layers.items()} == {"a": "a/Conv", "b_b": "b b", "c": None}
    assert [found.layer for found in read_nodes(source, no_file)] == ["a", "b_b", "c"]


def test_a_model_without_a_graph_has_nothing(opened: Open) -> None:
    for content in (b"", b"\x08\x0a", field(7, b""), field(7, b"") * 2, field(25, function("f").SerializeToString())):
        assert read_onnx(opened(content), no_file) == ({}, {})
        assert read_nodes(opened(content), no_file) == []


def test_a_model_has_one_graph(opened: Open) -> None:
    one = field(7, graph(tensors=[tensor("k")]).SerializeToString())
    assert names(opened(field(7, b"") + one + field(7, b""))) == ["k"]
    assert_refused(opened(one * 2), "holds 2 graphs")
    assert_refused(opened(one * 3), "holds 3 graphs")


@pytest.mark.parametrize("content", [model(conv("k", "wrong")).graph, function("Relu", [conv("k")])])
def test_of_a_model_the_graph_and_the_functions_are_read(content: Any, opened: Open) -> None:
    others = b"".join(field(number, content.SerializeToString()) for number in NUMBERS if number not in (7, 25))
    plain = model(node("Relu"), node("Own"), conv("k", "right"), functions=[function("Own")])
    assert problems(opened(others + plain.SerializeToString() + others)) == {
        "right": "its weight is computed or not in the file"
    }


@pytest.mark.parametrize("content", [conv("a", "wrong"), tensor("wrong"), ValueInfoProto(name="a")])
def test_of_a_graph_the_tensors_the_inputs_and_the_nodes_are_read(content: Any, opened: Open) -> None:
    others = b"".join(field(number, content.SerializeToString()) for number in NUMBERS if number not in (1, 5, 11, 15))
    plain = graph(conv("a", "a"), conv("b", "b"), conv("c", "c"), tensors=[tensor("b")], inputs=["c"])
    source = opened(field(7, others + plain.SerializeToString() + others))
    assert names(source) == ["b"]
    assert problems(source) == {"a": "its weight is computed or not in the file", "b": None, "c": GIVEN}


def test_of_an_input_the_last_of_its_names_is_read(opened: Open) -> None:
    texts = b"".join(field(1, name) for name in (b"a", b"b", b"c"))
    others = b"".join(field(number, b"d") for number in NUMBERS if number != 1)
    nodes = graph(*(conv(name, name) for name in "abcd")).SerializeToString()
    source = opened(field(7, field(11, others + texts + others) + field(11, others) + nodes))
    missing = "its weight is computed or not in the file"
    assert problems(source) == {"a": missing, "b": missing, "c": GIVEN, "d": missing}


# The names of a graph


def test_an_initializer_is_what_its_name_stands_for_even_if_it_is_an_input_too(opened: Open) -> None:
    plain = graph(conv("k", "a"), conv("l", "b"), tensors=[tensor("k")], inputs=["k", "l"])
    assert problems(opened(ModelProto(graph=plain))) == {"a": None, "b": GIVEN}


def test_where_in_a_graph_its_tensors_and_inputs_lie_makes_no_difference(opened: Open) -> None:
    parts = [
        graph(conv("k", "a"), conv("l", "b")).SerializeToString(),
        graph(tensors=[tensor("k")]).SerializeToString(),
        graph(inputs=["k", "l"]).SerializeToString(),
    ]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]):
        source = opened(field(7, b"".join(parts[number] for number in order)))
        assert problems(source) == {"a": None, "b": GIVEN}


def test_a_tensor_of_a_type_that_torch_lacks_is_none_of_the_file(opened: Open) -> None:
    text = TensorProto(name="t", data_type=TensorProto.STRING, string_data=[b"x"])
    source = opened(model(conv("t", "a"), tensors=[text, tensor("k")]))
    assert names(source) == ["k"]
    assert problems(source) == {"a": "its weight is computed or not a plain tensor"}


@pytest.mark.parametrize(
    "sparse",
    [
        field(1, field(8, b"s")),
        field(1, field(8, b"s") + field(4, b"kkkk")) + field(2, field(8, b"k")),
        field(2, field(8, b"k")) + field(1, field(8, b"k")) + field(1, field(8, b"s")),
        field(1, field(8, b"k") + field(8, b"s")) + field(1, field(9, b"k")),
    ],
)
def test_a_sparse_tensor_has_the_name_of_its_values(sparse: bytes, opened: Open) -> None:
    """Parts of a message are merged: the last name counts, if there is one."""
    nodes = graph(conv("k", "a"), conv("s", "b")).SerializeToString()
    source = opened(field(7, field(15, sparse) + nodes))
    missing = "its weight is computed or not in the file"
    assert problems(source) == {"a": missing, "b": "its weight is sparse"}


def test_two_tensors_of_one_name_are_refused(opened: Open) -> None:
    assert_refused(opened(model(tensors=[tensor("k"), tensor("k")])), "has two tensors called 'k'")
    assert_refused(opened(model(node("Relu", [], ["k"]), inputs=["k"])), "has two tensors called 'k'")
    inner = node("If", name="a", then=graph(tensors=[tensor("k" * 101)]))
    source = opened(model(inner, tensors=[tensor("a.then." + "k" * 101)]))
    assert_refused(source, f"has two tensors called {'a.then.' + 'k' * 93!r}")


def test_the_first_output_of_a_node_is_what_it_makes_and_the_others_are_computed(opened: Open) -> None:
    constant = node("Constant", [], ["a", "b", "c"], value=tensor(""))
    source = opened(model(constant, *(conv(name, f"of {name}") for name in "abc")))
    computed = "its weight is computed by Constant"
    assert problems(source) == {"of_a": None, "of_b": computed, "of_c": computed}
    assert names(source) == ["a"]


def test_a_constant_that_is_a_tensor_is_one_of_the_file(opened: Open) -> None:
    nodes = [
        node("Constant", [], ["a"], value=tensor("other")),
        node("Constant", [], ["b"], value_float=1.0),
        node("Constant", [], ["c"], value_string="text"),
        node("Constant", [], ["d"], value=tensor(""), domain="own"),
        node("Constant", [], [], value=tensor("")),
        node("Other", [], ["e"], value=tensor("")),
    ]
    source = opened(model(*nodes, *(conv(name, f"of {name}") for name in "abcde")))
    assert names(source) == ["a"]
    assert problems(source) == {
        "of_a": None,
        "of_b": "its weight has 0 dimensions, which no convolution has",
        "of_c": "its weight is computed by Constant",
        "of_d": "its weight is computed by Constant",
        "of_e": "its weight is computed by Other",
    }


def test_what_a_node_makes_of_tensors_in_the_file_is_known_and_all_else_is_computed(opened: Open) -> None:
    nodes = [
        node("Identity", ["k"], ["a"]),
        node("Identity", ["x"], ["b"]),
        node("Identity", ["k"], ["c"], domain="own"),
        node("Relu", ["k"], ["d"]),
        node("Cast", ["k"], ["e"], to=TensorProto.INT32),
        node("Add", ["k", "k"], ["f"]),
        node("Identity", ["k"], []),
        node("Transpose", ["k"], ["g", "h"]),
    ]
    source = opened(model(*nodes, *(conv(name, f"of {name}") for name in "abcdefgh"), tensors=[tensor("k")]))
    reasons = dict.fromkeys(("of_a", "of_g")) | {
        f"of_{name}": f"its weight is computed by {operator}"
        for name, operator in zip("bcdefh", ["Identity", "Identity", "Relu", "Cast", "Add", "Transpose"], strict=True)
    }
    assert problems(source) == {f"of_{name}": reasons[f"of_{name}"] for name in "abcdefgh"}
    assert names(source) == ["k", "g"]


def test_tensors_may_lie_in_another_file(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "beside").write_bytes(np.full(1, 7, np.float32).tobytes())
    beside = Source(tmp_path / "beside")
    external = TensorProto(name="k", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    external.external_data.append(StringStringEntryProto(key="location", value="beside"))
    source = opened(model(node("Constant", [], ["c"], value=external), tensors=[external]))
    tensors, _ = read_onnx(source, {"beside": beside}.__getitem__)
    found = [each for each in tensors.values() if isinstance(each, StoredTensor)]
    assert [each.storage.source for each in found] == [beside, beside]
    assert [each.read().tolist() for each in found] == [[7.0], [7.0]]


# Convolutions


def test_nodes_without_a_name_are_called_by_their_operators_and_numbers(opened: Open) -> None:
    nodes = [conv("none"), conv("none", "named"), node("Relu"), node("ConvTranspose"), conv("none", domain="own")]
    assert list(problems(opened(model(*nodes)))) == ["Conv_0", "named", "ConvTranspose_2", "Conv_3"]


def test_the_result_of_a_convolution_is_computed(opened: Open) -> None:
    nodes = [node("Conv", ["x", "k"], ["y", "z"], "a"), conv("y", "b"), conv("z", "c")]
    computed = "its weight is computed by Conv"
    assert problems(opened(model(*nodes, tensors=[tensor("k")]))) == {"a": None, "b": computed, "c": computed}


def test_each_convolution_of_integers_has_its_own_scale(opened: Open) -> None:
    integers = TensorProto(name="q", data_type=TensorProto.INT8, dims=[1, 1, 1, 1], raw_data=b"\3")
    scales = [TensorProto(name=f"s{n}", data_type=1, float_data=[2.0**n]) for n in range(3)]
    nodes = [conv("none", "first")]
    for number in range(3):
        nodes += [
            node("ConvInteger", ["x", "q"], [f"i{number}"], f"c{number}"),
            node("Cast", [f"i{number}"], [f"f{number}"], to=TensorProto.FLOAT),
            conv("none", f"between {number}"),
            node("Mul", [f"f{number}", f"s{number}"], [f"y{number}"]),
        ]
    nodes += [node("ConvInteger", ["x", "q"], ["i"], "c"), node("Conv", ["x", "none"], ["plain"], "last")]
    nodes += [node("Mul", ["plain", "s0"], ["end"])]
    tensors, layers = read_onnx(opened(model(*nodes, tensors=[integers, *scales])), no_file)
    found = [tensors[layers[name].weight] for name in ("c0", "c1", "c2", "c")]
    assert [each.read().item() for each in found if isinstance(each, StoredTensor)] == [3.0, 6.0, 12.0, 3.0]
    assert ["apply the scale" in str(layers[name].note) for name in ("c0", "c1", "c2", "c")] == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("operators", "note"),
    [
        ([], OPEN),
        (["Add", "Relu", "Batch", "BatchNormalizationGrad"], OPEN),
        (["BatchNormalization"], None),
        (["BatchNormalization", "Add", "Relu"], None),
        (["Add", "Relu", "BatchNormalization"], None),
        (["BatchNormalization"] * 2, None),
    ],
)
def test_whether_a_batch_normalisation_is_left_is_said_of_each_layer(
    operators: list[str], note: str | None, opened: Open
) -> None:
    layer = node("Conv", ["x", "k", "b"], [], "a")
    for place in range(len(operators) + 1):
        nodes = [*map(node, operators[:place]), layer, *map(node, operators[place:])]
        layers = read_onnx(opened(model(*nodes, tensors=[tensor("k"), tensor("b", 1)])), no_file)[1]
        assert layers["a"].note == note
        assert layers["a"].bias == "b"


# Graphs within nodes


def test_what_lies_in_the_graph_of_a_node_is_called_by_the_node_and_the_attribute(opened: Open) -> None:
    inner = graph(conv("k"), conv("outer"), tensors=[tensor("k")])
    nodes = [node("If", name="named", then=inner), node("If", then=inner), node("", then=inner), conv("outer")]
    source = opened(model(*nodes, tensors=[tensor("outer")]))
    assert names(source) == ["outer", "named.then.k", "If.then.k", "node.then.k"]
    found = read_nodes(source, no_file)
    assert [(each.stored.weight, each.stored.problem, each.is_nested) for each in found] == [
        ("named.then.k", None, True),
        ("outer", None, True),
        ("If.then.k", None, True),
        ("outer", None, True),
        ("node.then.k", None, True),
        ("outer", None, True),
        ("outer", None, False),
    ]
    prefixes = [*["named.then."] * 2, *["If.then."] * 2, *["node.then."] * 2, ""]
    assert [each.layer for each in found] == [f"{prefix}Conv_{number}" for number, prefix in enumerate(prefixes)]
    assert [each.is_called for each in found] == [False] * 7


def test_graphs_that_would_be_called_alike_are_numbered(opened: Open) -> None:
    def inner(name: str) -> NodeProto:
        found: NodeProto = node("If", name=name, g=graph(tensors=[tensor("k")]))
        return found

    source = opened(model(inner("b"), inner("a.g_2"), *[inner("a")] * 4))
    prefixes = ["b.g", "a.g_2.g", "a.g", "a.g_2", "a.g_3", "a.g_4"]
    assert names(source) == [f"{prefix}.k" for prefix in prefixes]
    functions = [function("F", [node("Constant", [], ["k"], value=tensor(""))])]
    calls = [call("F", label=name) for name in ("a_2", "a", "a", "a", "a")]
    source = opened(model(*calls, functions=functions))
    assert names(source) == ["a_2.k", "a.k", "a_2_2.k", "a_3.k", "a_4.k"]


def test_a_node_with_two_graphs_has_both(opened: Open) -> None:
    inner = graph(tensors=[tensor("k")])
    source = opened(model(node("If", then=inner, other=inner)))
    assert names(source) == ["If.other.k", "If.then.k"]


def test_a_constant_in_a_graph_is_called_by_the_graph(opened: Open) -> None:
    inner = graph(node("Constant", [], ["k"], value=tensor("")), conv("k", "c"))
    source = opened(model(node("If", name="a", g=inner)))
    assert names(source) == ["a.g.k"]
    assert problems(source) == {"a.g.c": None}


@pytest.mark.parametrize("depth", [0, 1, 63, 64, 65, 66])
def test_graphs_are_nested_up_to_64_deep(depth: int, opened: Open) -> None:
    content = graph(tensors=[tensor("k")]).SerializeToString()
    for _ in range(depth):
        content = field(1, field(5, field(1, b"a") + field(6, content)))
    source = opened(field(7, content))
    if depth <= 64:
        assert names(source) == ["node.a." * depth + "k"]
    else:
        assert_refused(source, "nests graphs more than 64 deep")


# Functions


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 66])
def test_functions_call_each_other_up_to_64_deep(depth: int, opened: Open) -> None:
    functions = [function(f"f{number}", [call(f"f{number + 1}")]) for number in range(depth - 1)]
    functions.append(function(f"f{depth - 1}", [conv("k", "c")]))
    inner = call("f0")
    source = opened(model(inner, functions=functions))
    if depth <= 64:
        (found,) = read_nodes(source, no_file)
        assert found.is_called
        assert found.layer.startswith("f0.f1." if depth > 1 else "f0.")
    else:
        assert_refused(source, "nests graphs more than 64 deep")


def test_a_function_at_the_end_of_64_graphs_is_one_too_many(opened: Open) -> None:
    functions = [function("F", [node("Relu")]).SerializeToString()]
    for depth in (63, 64):
        content = graph(call("F")).SerializeToString()
        for _ in range(depth):
            content = field(1, field(5, field(1, b"a") + field(6, content)))
        source = opened(field(7, content) + field(25, functions[0]))
        if depth == 63:
            assert names(source) == []
        else:
            assert_refused(source, "nests graphs more than 64 deep")


def test_a_function_is_called_by_its_domain_its_name_and_its_overload(opened: Open) -> None:
    keys = [("own", "F", ""), ("own", "F", "2"), ("own", "G", ""), ("other", "F", "")]
    functions = [
        function(name, [conv("none", f"{number}")], domain=domain, overload=overload)
        for number, (domain, name, overload) in enumerate(keys)
    ]
    calls = [
        node(name, name=f"call {number}", domain=domain, overload=overload)
        for number, (domain, name, overload) in enumerate([*keys, ("", "F", ""), ("own", "H", "")])
    ]
    found = problems(opened(model(*calls, functions=functions)))
    assert list(found) == [f"call_{number}.{number}" for number in range(4)]


def test_the_last_of_three_texts_names_a_function(opened: Open) -> None:
    texts = b"".join(field(number, text) for text in (b"a", b"b", b"c") for number in (1, 10, 13))
    body = field(7, conv("none", "inner").SerializeToString())
    calls = model(*(node(name, domain=name, overload=name) for name in "abc"))
    assert list(problems(opened(calls.SerializeToString() + field(25, texts + body)))) == ["c.inner"]


def test_two_functions_of_one_name_are_refused(opened: Open) -> None:
    twice = "has two functions called 'F'"
    assert_refused(opened(model(functions=[function("F"), function("F")])), twice)
    long = [function("F" * 101, domain="own")] * 2
    assert_refused(opened(model(functions=long)), f"has two functions called {'F' * 100!r}")
    for other in (function("G"), function("F", domain="other"), function("F", overload="2")):
        assert names(opened(model(functions=[function("F"), other]))) == []


def test_a_function_sees_what_it_is_given_and_nothing_else(opened: Open) -> None:
    inside = [conv(name, f"of {name}") for name in ("p", "q", "r", "k")]
    functions = [function("F", inside, input=["p", "q", "r"])]
    nodes = [node("Relu", ["x"], ["y"]), call("F", ["k", "y"], label="call")]
    source = opened(model(*nodes, tensors=[tensor("k"), tensor("r")], functions=functions))
    assert problems(source) == {
        "call.of_p": None,
        "call.of_q": "its weight is computed by Relu",
        "call.of_r": GIVEN,
        "call.of_k": "its weight is computed or not in the file",
    }
    assert [found.is_nested for found in read_nodes(source, no_file)] == [True] * 4


def test_the_results_of_a_call_are_what_the_function_gives(opened: Open) -> None:
    inside = [node("Identity", ["p"], ["a"]), node("Relu", ["p"], ["b"])]
    functions = [function("F", inside, input=["p"], output=["b", "a", "nothing"])]
    calling = call("F", ["k"], ["first", "second", "third", "fourth", "fifth"])
    results = [conv(name, f"of {name}") for name in calling.output]
    assert problems(opened(model(calling, *results, tensors=[tensor("k")], functions=functions))) == {
        "of_first": "its weight is computed by Relu",
        "of_second": None,
        "of_third": "its weight is computed by F",
        "of_fourth": "its weight is computed by F",
        "of_fifth": "its weight is computed by F",
    }


def test_an_attribute_of_a_function_is_what_the_call_says_or_its_default(opened: Open) -> None:
    body = conv("p", "c")
    body.attribute.append(AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS))
    default = helper.make_attribute("steps", [2, 3])
    functions = [function("F", [body], input=["p"], attribute_proto=[default]), function("G", [body], input=["p"])]
    calls = [call("F", ["k"], label="a"), call("F", ["k"], label="b", steps=[4, 5]), call("G", ["k"], label="c")]
    layers = read_onnx(opened(model(*calls, tensors=[tensor("k")], functions=functions)), no_file)[1]
    strides = {name: stored.spec.stride for name, stored in layers.items() if stored.spec is not None}
    assert strides == {"a.c": (2, 3), "b.c": (4, 5), "c.c": (1, 1)}


@pytest.mark.parametrize("content", [b"p", conv("k", "wrong"), helper.make_attribute("steps", [9, 9])])
def test_of_a_function_nothing_else_is_read(content: Any, opened: Open) -> None:
    told = (1, 4, 5, 7, 10, 11, 13)
    junk = content if isinstance(content, bytes) else content.SerializeToString()
    others = b"".join(field(number, junk) for number in NUMBERS if number not in told)
    body = conv("p", "c")
    body.attribute.append(AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS))
    default = helper.make_attribute("steps", [2, 3])
    own = function("F", [node("Identity", ["p"], ["a"]), body], input=["p"], output=["a"], attribute_proto=[default])
    own.overload = "2"
    calling = call("F", ["k"], ["y", "z"], "call", overload="2")
    plain = model(calling, conv("y", "of y"), conv("z", "of z"), tensors=[tensor("k")]).SerializeToString()
    layers = read_onnx(opened(plain + field(25, others + own.SerializeToString() + others)), no_file)[1]
    assert {name: stored.problem for name, stored in layers.items()} == {
        "call.c": None,
        "of_y": None,
        "of_z": "its weight is computed by F",
    }
    inner = layers["call.c"].spec
    assert inner is not None
    assert inner.stride == (2, 3)


def test_a_convolution_is_called_if_it_lies_in_a_function_of_any_depth(opened: Open) -> None:
    functions = [
        function("F", [conv("none", "f1"), call("G", label="g"), conv("none", "f2")]),
        function("G", [conv("none", "g1"), node("If", name="i", then=graph(conv("none", "g2")))]),
    ]
    nodes = [
        conv("none", "before"),
        call("F", label="f"),
        conv("none", "between"),
        call("G", label="g"),
        node("If", name="i", then=graph(conv("none", "inside"))),
        conv("none", "after"),
    ]
    found = read_nodes(opened(model(*nodes, functions=functions)), no_file)
    assert {each.layer: each.is_called for each in found} == {
        "before": False,
        "f.f1": True,
        "f.g.g1": True,
        "f.g.i.then.g2": True,
        "f.f2": True,
        "between": False,
        "g.g1": True,
        "g.i.then.g2": True,
        "i.then.inside": False,
        "after": False,
    }


@pytest.mark.parametrize("domain", ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.ms.internal.nhwc"])
def test_a_function_in_a_domain_of_those_who_run_it_is_refused(domain: str, opened: Open) -> None:
    """ONNX Runtime runs its own operator in the place of the function."""
    own = function("Conv" * 30, [conv("k")], domain)
    called = f"has a function {('Conv' * 30)[:100]!r} in the domain {domain!r}"
    message = f"{called}, whose operators those who run it have themselves"
    assert_refused(opened(model(functions=[own])), message)
    for other in ("my.ai.onnx", "ai.onnxruntime._fusion"):
        own.domain = other
        assert names(opened(model(functions=[own]))) == []


def test_a_function_of_the_name_of_an_operator_is_called_by_its_domain(opened: Open) -> None:
    functions = [function("Conv", [conv("none", "inner", domain="other")]), function("Constant", output=["a"])]
    nodes = [call("Conv", ["x", "k"], label="a"), call("Constant", [], ["c"], value=tensor("")), conv("c", "b")]
    source = opened(model(*nodes, functions=functions))
    assert problems(source) == {
        "a.inner": "it is an operator of 'other', not of ONNX",
        "b": "its weight is computed by Constant",
    }
    assert names(source) == []


# What it takes


def taken(opened: Open, more: ModelProto, less: ModelProto) -> tuple[int, int]:
    """The memory and the steps that a model takes more than another."""
    (memory, steps), (less_memory, less_steps) = (spent(opened(each)) for each in (more, less))
    return memory - less_memory, steps - less_steps


def test_a_node_takes_ten_steps_and_two_each_time_that_it_is_passed(opened: Open) -> None:
    empty = NodeProto()
    assert taken(opened, model(empty, empty, empty), model(empty)) == (0, 2 * (3 * 2 + 10))


def test_only_nodes_that_are_read_are_kept(opened: Open) -> None:
    """A text takes 80 bytes and its letters."""
    assert taken(opened, model(node("Relu"), node("Relu")), model(node("Relu")))[0] == 84
    assert taken(opened, model(node("Cast"), node("Relu")), model(node("Relu")))[0] == 84 + 400
    assert taken(opened, model(node("Cast", domain="own"), node("Relu")), model(node("Relu")))[0] == 84 + 83
    functions = [function("Cast")]
    more = model(node("Cast", domain="own"), functions=functions)
    assert taken(opened, more, model(functions=functions))[0] == 84 + 83 + 400 + 400 + len("Cast.")


def test_a_tensor_takes_its_name_its_meaning_and_its_description(opened: Open) -> None:
    """Its graph is passed three times, each of its fields once."""
    one = TensorProto(name="k", data_type=1, raw_data=bytes(4))
    text = TensorProto(name="k", data_type=TensorProto.STRING)
    assert taken(opened, model(tensors=[one]), model()) == (81 + 200 + 400, 3 * 2 + 3 * 2)
    assert taken(opened, model(tensors=[text]), model()) == (81 + 200, 3 * 2 + 2 * 2)


def test_a_convolution_takes_120_steps_more(opened: Open) -> None:
    """Its operator is a field, and its layer's name has one part."""
    before = model(node("Relu"))
    assert taken(opened, model(node("Relu"), node("Conv")), before)[1] == 3 * 2 + 2 + 10 + 120 + 1


def test_a_function_takes_its_description(opened: Open) -> None:
    assert taken(opened, model(functions=[function("")]), model()) == (80 + 83 + 400, 2 * 3)


def test_a_call_takes_60_steps_and_its_prefix_and_each_node_of_the_body_a_description(opened: Open) -> None:
    functions = [function("F")]
    called = taken(opened, model(call("F"), functions=functions), model(functions=functions))
    assert called == (81 + 83 + 400 + 400 + len("F."), 4 * 2 + 2 + 10 + 60 + 2 * 2)
    longer = [function("F", [NodeProto()] * 2)]
    more = taken(opened, model(call("F"), functions=longer), model(functions=longer))
    assert (more[0] - called[0], more[1] - called[1]) == (2 * 400, 2 * (2 + 10))


def test_a_graph_in_a_node_takes_60_steps_and_its_prefix(opened: Open) -> None:
    def nested(count: int) -> ModelProto:
        return ModelProto(graph=GraphProto(node=[NodeProto(attribute=[AttributeProto(g=GraphProto())])] * count))

    first = taken(opened, nested(1), model(NodeProto()))
    assert first == (400 + len("node.."), 60 + 2 + 2)
    second = taken(opened, nested(2), model(NodeProto(), NodeProto()))
    assert second == (3 * 400 + 2 * len("node..") + len("node._2."), 3 * 60 + 2 * (2 + 2))


@pytest.mark.parametrize(("tensors", "nodes"), [(5, 0), (4, 1), (2, 3), (0, 5)])
def test_tensors_and_convolutions_are_counted_together(
    tensors: int, nodes: int, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = model(*[conv("none")] * nodes, tensors=[tensor(str(number)) for number in range(tensors)])
    monkeypatch.setattr(module, "MAX_TENSORS", 5)
    found = read_onnx(opened(described), no_file)
    assert (len(found[0]), len(found[1])) == (tensors, nodes)
    for more in (model(conv("none")), model(node("Constant", [], ["c"], value=tensor("")))):
        one_more = ModelProto()
        one_more.CopyFrom(described)
        one_more.graph.node.extend(more.graph.node)
        assert_refused(opened(one_more), "has more than 5 tensors")
