"""Names of layers are made of names of nodes: what is dropped, what is joined, what is counted, and what it takes."""

from __future__ import annotations

import pytest

from conv2attn.convert.files.readers.common.limits import MAX_DEPTH, Budget
from conv2attn.convert.files.readers.onnx.naming import layer_names


def names(*given: str) -> list[str]:
    return list(layer_names(given, Budget()).values())


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("/a/a.0/a.0.1/conv/Conv", "a.0.1.conv"),
        ("a/b/b.0/Conv", "a.b.0"),
        ("a/b/Conv", "a.b"),
        ("Conv", "Conv"),
        ("/Conv/", "Conv"),
        ("a/FusedConv2D", "a"),
        ("a/QLinearConv", "a"),
        ("a/DepthwiseConv2d__3", "a"),
        ("a/ConvTranspose", "a"),
        ("a/Conv_1", "a.Conv_1"),
        ("Conv/a", "Conv.a"),
        ("a/ab", "a.ab"),
        ("a/b;c/d;e", "a.b"),
        (";a", "layer"),
        ("", "layer"),
        ("a: b", "a_b"),
        ("a-b", "a-b"),
        ("training/forwards", "training_.forwards"),
    ],
)
def test_a_name_tells_of_a_module(name: str, own: str) -> None:
    assert names(name, "/other") == [own, "other"]


def test_one_name_that_is_empty_is_the_network_itself() -> None:
    assert layer_names([""], Budget()) == {"": ""}
    assert layer_names([], Budget()) == {}
    assert names("") == [""]
    assert names("", "a") == ["layer", "a"]
    assert names("a") == ["a"]


def test_a_name_that_is_taken_is_joined_and_then_counted_from_two() -> None:
    assert names("a/b", "/a/b", "a.b", "a_b") == ["a.b", "a_b", "a_b_2", "a_b_3"]
    assert names("a_b_2", "a/b", "/a/b", "a//b", "c/d", "/c/d", "c//d") == [
        *("a_b_2", "a.b", "a_b", "a_b_3", "c.d", "c_d", "c_d_2"),
    ]


def test_no_name_lies_within_another() -> None:
    assert names("a", "a/b") == ["a", "a_b"]
    assert names("a/b", "a") == ["a.b", "a_2"]
    assert names("a/b/c/d", "a/b") == ["a.b.c.d", "a_b"]
    assert names("a", "a/b/c/d") == ["a", "a_b_c_d"]
    assert names("a/b", "a/c") == ["a.b", "a.c"]


@pytest.mark.parametrize("depth", [1, 2, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 3 * MAX_DEPTH])
def test_a_module_lies_in_fewer_modules_than_are_read_and_the_last_parts_are_joined(depth: int) -> None:
    parts = [f"p{number}" for number in range(depth)]
    kept = parts if depth < MAX_DEPTH else [*parts[: MAX_DEPTH - 2], "_".join(parts[MAX_DEPTH - 2 :])]
    assert names("/".join(parts)) == [".".join(kept)]


def test_names_and_the_modules_around_them_are_paid_for_once() -> None:
    budget = Budget()
    memory, steps = budget.memory, budget.steps
    layer_names(["a/bc/d/Conv", "a/bc/e"], budget)
    names_take = (200 + 2 * len("a/bc/d/Conv")) + (200 + 2 * len("a/bc/e"))
    assert memory - budget.memory == names_take + (200 + len("a")) + (200 + len("a.bc"))
    assert steps - budget.steps == 3 + 3
