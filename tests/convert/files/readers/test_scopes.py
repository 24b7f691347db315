"""What a name stands for in a graph, and in the graphs within it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.stored import OddTensor, Source
from conv2attn.convert.files.readers.onnx.scopes import Known, Scope, Unknown


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "model.onnx").touch()
    return Source(tmp_path / "model.onnx")


def test_a_graph_sees_its_own_names_and_those_of_all_around_it(source: Source) -> None:
    outermost = Scope(source)
    middle = Scope(source, "m/", outermost)
    inner = Scope(source, "m/i/", middle)
    first, second, third = (Unknown(f"computed by {name}") for name in "abc")
    outermost.define("a", first)
    middle.define("b", second)
    inner.define("c", third)
    assert [inner.find(name) for name in "abcd"] == [first, second, third, None]
    assert [middle.find(name) for name in "abcd"] == [first, second, None, None]
    assert [outermost.find(name) for name in "abcd"] == [first, None, None, None]
    assert [[scope.holds(name) for name in "abc"] for scope in (outermost, middle, inner)] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    assert [scope.prefix for scope in (outermost, middle, inner)] == ["", "m/", "m/i/"]


def test_a_name_that_a_graph_around_has_stands_for_nothing_that_is_known(source: Source) -> None:
    outermost = Scope(source)
    inner = Scope(source, "i/", Scope(source, "m/", outermost))
    outermost.define("a", Unknown("computed by Add"))
    inner.define("a", Unknown("computed by Mul"))
    found = inner.find("a")
    assert isinstance(found, Unknown)
    assert found.reason == "of a name that a graph around has, too"
    assert outermost.find("a") == Unknown("computed by Add")


def test_a_tensor_came_through_no_node_unless_that_is_said(source: Source) -> None:
    scope = Scope(source)
    scope.define("w", Known("w", OddTensor("sparse"), "w"))
    found = scope.find("w")
    assert isinstance(found, Known)
    assert (found.note, found.steps) == (None, 0)


def test_a_name_is_given_once_and_takes_200_bytes_and_none_takes_nothing(source: Source) -> None:
    scope, before = Scope(source), source.budget.memory
    scope.define("", Unknown("left out"))
    scope.define("", Unknown("left out"))
    assert source.budget.memory == before
    assert not scope.holds("")
    scope.define("a", Unknown("computed"))
    assert source.budget.memory == before - 200
    with pytest.raises(CheckpointError, match="has two tensors called 'a'"):
        scope.define("a", Unknown("computed"))


def test_a_name_that_gets_the_graphs_around_it_in_front_is_charged_with_all_of_its_letters(source: Source) -> None:
    budget = source.budget
    before = budget.memory
    assert Scope(source).key("a" * 100) == "a" * 100
    assert budget.memory == before
    assert Scope(source, "m/").key("a" * 100) == "m/" + "a" * 100
    assert before - budget.memory == 80 + 102
    before = budget.memory
    Scope(source, "m/").key("\u00e9")
    assert before - budget.memory == 80 + 4 * 3
