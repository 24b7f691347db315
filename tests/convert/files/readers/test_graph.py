"""What lies around a convolution in its layer's own part of a program: a padding, nothing, or more, which is named."""

from __future__ import annotations

from typing import Any

import pytest

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.graph import Graph
from conv2attn.convert.files.readers.node import arguments, module, node_name, stack_of, target, values_of
from tests.convert.files.readers.program_nodes import STACK, node


def conv(*, operation: str = "conv2d.default", **given: Any) -> dict[str, object]:
    return node(operation, "%y", **{"input": "%x", "weight": "%w", **given})


def pad(pads: Any = (1, 1, 2, 2), *, stack: str = STACK, **given: Any) -> dict[str, object]:
    return node("pad.default", "%x", stack=stack, **{"self": "%i", "pad": list(pads), **given})


def around(*nodes: dict[str, object], layer: str = "net.conv") -> tuple[dict[str, object], str | None]:
    """What a program of these nodes computes around its one convolution."""
    graph = Graph(list(nodes), Budget())
    (found,) = graph.convolutions
    return graph.within(found, layer)


OTHER_CALL = STACK.replace("call,", "again,")
OTHER_LAYER = "call,net.other,torch.nn.Conv2d"
MORE = "its layer computes more than a convolution (aten.{})"


@pytest.mark.parametrize(
    "nodes",
    [
        [conv()],
        [pad(stack=OTHER_CALL), conv()],
        [pad(stack=OTHER_LAYER), conv()],
        [conv(), node("relu.default", "%z", stack=OTHER_CALL, self="%y")],
        [conv(), node("relu.default", "%z", stack=OTHER_LAYER, self="%y")],
        [conv(), node("_assert_tensor_metadata.default", "%z", a="%y")],
        [node("_assert_scalar.default", "%x", self="%i"), conv()],
        [conv(), node("relu.default", "%z", self="%other")],
    ],
)
def test_a_convolution_alone_in_its_call_is_its_layer(nodes: list[dict[str, object]]) -> None:
    assert around(*nodes) == ({}, None)


def test_of_a_convolution_of_another_layer_nothing_is_said() -> None:
    for layer in ("net.a", "net.other"):
        assert around(pad(mode="unheard of"), conv(), layer=layer) == ({}, None)


@pytest.mark.parametrize(
    ("pads", "given", "own", "wanted"),
    [
        ((1, 1, 2, 2), {}, {}, {"padding": [2, 1], "padding_mode": "zeros"}),
        ((3, 3), {}, {}, {"padding": [3], "padding_mode": "zeros"}),
        ((1, 1, 2, 2, 3, 3), {"mode": "reflect"}, {}, {"padding": [3, 2, 1], "padding_mode": "reflect"}),
        ((1, 1), {"mode": "circular"}, {"padding": "valid"}, {"padding": [1], "padding_mode": "circular"}),
        ((1, 1), {"mode": "replicate"}, {"padding": [0, 0]}, {"padding": [1], "padding_mode": "replicate"}),
        ((1, 1), {"mode": "constant", "value": 0.0}, {}, {"padding": [1], "padding_mode": "zeros"}),
        ((1, 1), {"value": None}, {}, {"padding": [1], "padding_mode": "zeros"}),
    ],
)
def test_a_padding_that_torch_has_a_word_for_is_the_layer_s(
    pads: tuple[int, ...], given: dict[str, Any], own: dict[str, Any], wanted: dict[str, object]
) -> None:
    assert around(pad(pads, **given), conv(**own)) == (wanted, None)


@pytest.mark.parametrize(
    ("before", "own"),
    [
        (pad((1, 2, 2, 2)), {}),
        (pad((2, 1, 2, 2)), {}),
        (pad((1, 1, 2)), {}),
        (pad((2, 2, 1)), {}),
        (pad(mode="mirror"), {}),
        (pad(value=1.0), {}),
        (pad(value=-1.0), {}),
        (node("pad.default", "%x", self="%i", pad="1, 1"), {}),
        (node("pad.default", "%x", self="%i"), {}),
        (pad(), {"padding": [0, 1]}),
        (pad(), {"padding": [1, 0]}),
        (pad(), {"padding": "same"}),
        (pad(), {"operation": "conv_transpose2d.input"}),
    ],
)
def test_a_padding_that_torch_has_no_word_for_is_more(before: dict[str, object], own: dict[str, Any]) -> None:
    assert around(before, conv(**own)) == ({}, MORE.format("pad.default"))


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ([conv(), node("relu.default", "%z", self="%y")], "relu.default"),
        ([conv(), node("cat.default", "%z", tensors=["%other", "%y"])], "cat.default"),
        ([pad(), conv(), node("relu.default", "%z", self="%y")], "relu.default"),
        ([conv(), node("relu.default", "%z", self="%y"), node("neg.default", "%u", self="%y")], "relu.default"),
        ([node("matmul.default", "%x", self="%i"), conv()], "matmul.default"),
        ([node("constant_pad_nd.default", "%x", self="%i", pad=[1, 1]), conv()], "constant_pad_nd.default"),
        ([node("reflection_pad1d.default", "%x", self="%i", pad=[1, 1]), conv()], "reflection_pad1d.default"),
        ([node("neg.default", "%i", self="%j"), pad(), conv()], "pad.default"),
        ([node("x" * 200, "%x", self="%i"), conv()], "x" * 95),
    ],
)
def test_what_a_layer_computes_besides_is_named(nodes: list[dict[str, object]], named: str) -> None:
    assert around(*nodes) == ({}, MORE.format(named))


def test_what_comes_before_a_padding_in_another_call_is_not_the_layer_s() -> None:
    found = around(node("neg.default", "%i", stack=OTHER_CALL, self="%j"), pad(), conv())
    assert found == ({"padding": [2, 1], "padding_mode": "zeros"}, None)


def within(name: str, *nodes: dict[str, object]) -> dict[str, object]:
    """A node that takes a graph of nodes."""
    return {"inputs": [{"arg": {"as_bool": True}}, {"arg": {"as_graph": {"name": name, "graph": {"nodes": [*nodes]}}}}]}


def test_convolutions_in_graphs_within_a_program_are_named_by_the_graphs_that_they_lie_in() -> None:
    nameless = {key: value for key, value in conv().items() if key != "name"}
    inner = within("inner", node("relu.default", "%z"), nameless)
    inner["inputs"] += [{"arg": {"as_graph": {"name": "no nodes"}}}, {"arg": {"as_graph": "no graph"}}]  # type: ignore[operator]
    graph = Graph([conv(), within("true", conv(), inner), within("false", node("relu.default", "%z"))], Budget())
    assert sorted(graph.inner) == ["true.inner.1", "true.y"]
    assert len(graph.convolutions) == 1


RELUS = [node("relu.default", f"%{number}") for number in range(100)]


def test_nodes_are_charged_wherever_they_are() -> None:
    budget = Budget()
    before = budget.memory, budget.steps
    Graph(list(RELUS), budget)
    outer = before[0] - budget.memory
    assert outer >= 100 * 64  # an empty dictionary
    middle = budget.memory, budget.steps
    Graph([within("n" * 1000, *RELUS)], budget)
    assert middle[0] - budget.memory >= outer + 100 * 1000
    assert middle[1] - budget.steps == 100
    before = budget.memory, budget.steps
    Graph([within("n" * 2000, *RELUS)], budget)
    assert (before[0] - budget.memory) - (middle[0] - before[0]) == 100 * 1000 * 4  # bytes that a letter may take
    budget.steps = 99
    with pytest.raises(CheckpointError, match="more steps"):
        Graph([within("n", *RELUS)], budget)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (node("add_.Tensor", "%z", self="%w", other="%b"), {"%w"}),
        (node("add.out", "%z", self="%w", out="%b"), {"%b"}),
        (node("add_.out", "%z", self="%w", out="%b"), {"%w", "%b"}),
        (node("add.Tensor", "%z", self="%w", other="%b"), set()),
        (node("add_.Tensor", "%z", other="%b"), set()),
        ({"target": "add_", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "%w"}}}]}, {"%w"}),
        (node("add.unheard_of", "%z", self="%w", other="%b"), {"%w", "%b"}),
        (node("_foreach_mul_.Scalar", "%z", self=["%w", "%b"], scalar=2.0), {"%w", "%b"}),
        (node("aminmax.out", "%z", self="%a", min="%w", max="%b"), {"%w", "%b"}),
        (node("index_put_.default", "%z", self="%w", indices=["%i"], values="%b"), {"%w"}),
        (node("batch_norm.default", "%z", input="%x", weight="%a", running_mean="%w", running_var="%b"), {"%w", "%b"}),
        ({"target": "torch.ops.own.write", "inputs": [{"name": "x", "arg": {"as_tensor": {"name": "%w"}}}]}, {"%w"}),
        ({"target": "aten.add_", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "%w"}}}]}, {"%w"}),
    ],
)
def test_what_a_program_writes_into_is_known(written: dict[str, object], wanted: set[str]) -> None:
    assert Graph([written], Budget()).written == wanted


VIEW = node("detach.default", "%v", self="%w")


@pytest.mark.parametrize(
    ("nodes", "is_written"),
    [
        ([VIEW, node("mul_.Scalar", "%z", self="%v", other=2.0)], True),
        ([VIEW, node("select.int", "%s", self="%v", dim=0), node("zero_.default", "%z", self="%s")], True),
        ([VIEW, node("mul.out", "%z", self="%i", other="%i", out="%v")], True),
        ([node("unbind.int", "%v", self="%w"), node("_foreach_zero_.default", "%z", self=["%u", "%v"])], True),
        ([VIEW, node("add_.Tensor", "%z", self="%i", other="%v")], False),
        ([VIEW, node("neg.default", "%z", self="%v")], False),
        ([conv(), node("relu_.default", "%z", self="%y")], False),
    ],
)
def test_a_tensor_is_written_into_through_whatever_is_computed_from_it(
    nodes: list[dict[str, object]], is_written: bool
) -> None:
    """What is computed may be a view; only a convolution's result is certainly none."""
    assert ("%w" in Graph(list(nodes), Budget()).written) == is_written


def test_two_nodes_do_not_give_one_tensor() -> None:
    for nodes in (
        [conv(), node("neg.default", "%y", self="%x")],
        [dict(conv(), outputs=[{"as_tensors": [{"name": "a"}] * 2}])],
    ):
        with pytest.raises(CheckpointError, match=r"the program computes '%?[ay]' twice"):
            Graph(list(nodes), Budget())


@pytest.mark.parametrize("arg", [{"as_none": True}, {"as_ints": [2, 2]}, {"as_ints": [1, 1]}])
def test_a_node_is_given_an_argument_once(arg: dict[str, object]) -> None:
    twice = conv(stride=[1, 1])
    twice["inputs"].append({"name": "stride", "arg": arg})  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="the program gives 'y' an argument twice"):
        Graph([twice], Budget())
    unnamed = {"target": "torch.ops.higher_order.f", "inputs": [{"name": "", "arg": arg}] * 2}
    assert Graph([unnamed], Budget()).written == set()


def test_what_is_looked_at_for_many_convolutions_is_charged_for_each() -> None:
    """One node may be around them all, with as many arguments or as long a name of its call."""

    def steps(before: dict[str, object], count: int) -> int:
        convolutions = [dict(conv(), outputs=[{"as_tensor": {"name": f"%{number}"}}]) for number in range(count)]
        graph = Graph([before, *convolutions], Budget())
        left = graph.budget.steps
        for each in graph.convolutions:
            graph.within(each, "net.conv")
        return left - graph.budget.steps

    assert steps(pad([1] * 1000), 60) - steps(pad([1] * 1000), 10) >= 50 * 1000
    long = f"call,net.conv,{'x' * 100_000}"
    assert steps(pad(stack=long), 60) - steps(pad(stack=long), 10) >= 50 * 100


@pytest.mark.parametrize(
    ("stack", "wanted"),
    [
        ("1,a,A", "a"),
        ("1,a,A;2,a.b,B", "a.b"),
        ("1,a,A[1, 2, 3]", "a"),
        ("1,,A", ""),
        ("1,a", None),
        ("", None),
        ("1,a,A;", None),
        (3, None),
        (None, None),
    ],
)
def test_a_node_s_module_is_the_innermost_that_the_program_says(stack: object, wanted: str | None) -> None:
    assert module({"metadata": {"nn_module_stack": stack}}) == wanted


def test_a_program_that_says_nothing_is_read_as_that() -> None:
    for empty in ({}, {"metadata": 3, "name": 3, "target": 3, "inputs": 3, "outputs": 3}):
        assert (module(empty), node_name(empty), target(empty), arguments(empty)) == (None, "", "", {})
        graph = Graph([empty, 3, None], Budget())
        assert (graph.convolutions, graph.inner, graph.written) == ([], [], frozenset())


def test_arguments_are_what_the_program_gives_by_name() -> None:
    given = node("add.Tensor", "%z", self="%w", alpha=2, mode="reflect", sizes=[1, 2], scale=0.5, bias=None)
    given["inputs"] = [
        *given["inputs"],  # type: ignore[misc]
        {"name": "two kinds", "arg": {"as_int": 1, "as_float": 1.0}},
        {"name": "none", "arg": {}},
        {"name": "number", "arg": 3},
        {"name": "nothing"},
        "text",
    ]
    assert arguments(given) == {"self": "%w", "alpha": 2, "mode": "reflect", "sizes": [1, 2], "scale": 0.5}


def test_the_maker_of_an_argument_is_the_node_that_gives_it() -> None:
    split = node("split.Tensor", "%unused", self="%i")
    split["outputs"] = [{"as_tensors": [{"name": "%a"}, {"name": "%x"}, {"other": 1}, 3]}, {"as_int": 3}, {}, 3]
    graph = Graph([split, conv()], Budget())
    assert graph.maker(conv(), "input") is split
    assert graph.maker(conv(), "weight") is None
    assert graph.maker(conv(), "bias") is None


def test_a_node_s_values_are_counted_with_the_items_of_its_lists() -> None:
    assert values_of({"target": "t", "inputs": []}) == 1
    given = [
        {"name": "a", "arg": {"as_int": 1}},
        {"name": "b", "arg": {"as_ints": [1, 2, 3], "other": "x"}},
        {"arg": 2},
    ]
    assert values_of({"target": "t", "inputs": given}) == 1 + 4 * 3 + 3


def test_what_writes_reach_is_charged_once_in_memory_and_each_time_in_steps() -> None:
    chain = [node("detach.default", "%a", self="%w"), node("detach.default", "%b", self="%w")]
    writes = [node("add_.Tensor", f"%{name}{name}", self=f"%{name}", other="%x") for name in "ab"]
    budget = Budget()
    memory, steps = budget.memory, budget.steps
    assert Graph([*chain, *writes], budget).written == {"%a", "%b", "%w"}
    assert memory - budget.memory == 4 * 200 + 3 * 100  # the nodes, and the names
    assert steps - budget.steps == 4  # %w twice


def test_a_node_is_charged_for_the_letters_that_say_which_call_it_is_of() -> None:
    def charged(*letters: int) -> float:
        around = len(stack_of(node("relu.default", "%z", stack="")))
        users = [node("relu.default", f"%z{n}", self="%y", stack="n" * (n - around)) for n in letters]
        budget = Budget()
        graph = Graph([conv(), *users], budget)
        before = budget.steps
        graph.within(graph.convolutions[0], module(graph.convolutions[0]) or "")
        return before - budget.steps

    assert [charged(n) - charged() for n in (999, 1000, 1001, 10_000)] == [1, 2, 2, 11]
