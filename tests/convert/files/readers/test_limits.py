"""The limits of reading are where they are said to be, and a budget is spent to its last byte and step."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common import limits
from conv2attn.convert.files.readers.common.limits import Budget, parse_json, read_json

SECURITY = Path(__file__).parents[4] / "docs" / "security.md"


def test_a_budget_is_spent_to_its_last_byte_and_step() -> None:
    for what, left in (("memory", limits.MAX_MEMORY), ("steps", limits.FREE_STEPS)):
        budget = Budget()
        budget.spend(**{what: left - 1})
        budget.spend(**{what: 1})
        with pytest.raises(
            CheckpointError, match=f"it takes more {what} to read than any checkpoint of its size needs"
        ):
            budget.spend(**{what: 1})


def test_nothing_is_spent_unless_it_is_said_and_what_is_spent_is_named() -> None:
    budget = Budget()
    budget.spend()
    assert (budget.memory, budget.steps) == (limits.MAX_MEMORY, limits.FREE_STEPS)
    budget.spend(memory=limits.MAX_MEMORY, steps=limits.FREE_STEPS)
    with pytest.raises(CheckpointError, match="more steps"):
        budget.spend(steps=1)


def test_a_file_adds_a_byte_and_a_step_for_each_of_its_bytes_up_to_a_limit() -> None:
    budget = Budget()
    budget.add_file(1000)
    budget.add_file(1)
    assert (budget.memory, budget.steps, budget.size) == (limits.MAX_MEMORY + 1001, limits.FREE_STEPS + 1001, 1001)
    budget.add_file(limits.MAX_STEPS)
    assert budget.steps == limits.FREE_STEPS + limits.MAX_STEPS
    budget.add_file(10)
    assert budget.steps == limits.FREE_STEPS + limits.MAX_STEPS
    assert budget.memory == limits.MAX_MEMORY + 1011 + limits.MAX_STEPS


def test_the_size_of_a_text_is_that_of_its_letters_which_one_wide_one_makes_wide() -> None:
    assert [limits.text_size(text) for text in ("", "a", "abc", "abc\u00e9", "ab\U0001f600")] == [0, 1, 3, 16, 12]


def test_limits_are_those_that_the_documentation_states() -> None:
    documented, budget = " ".join(SECURITY.read_text(encoding="utf-8").split()), Budget()
    for sentence in (
        f"{limits.MAX_TENSORS:,} tensors, {limits.MAX_DIMENSIONS} dimensions, {limits.MAX_NAME:,} bytes of a name",
        f"{limits.MAX_DEPTH} modules in modules, {limits.MAX_HEADER / 2**20:g} MB of header or JSON",
        f"{limits.MAX_JSON_VALUES:,} values of JSON; {budget.steps:,} steps",
        f"up to {limits.MAX_STEPS:,}; {budget.memory / 2**20:g} MB and the files' size",
        f"to {limits.MAX_OVERLAP} times the files' size and {limits.SPARE / 2**20:g} MB",
        f"under each of their names, to {limits.MAX_SHARING} times it and {limits.SPARE / 2**20:g} MB.",
    ):
        assert sentence in documented


def test_json_is_read_up_to_its_largest_length(tmp_path: Path) -> None:
    text = b'{"a": 1}'.ljust(limits.MAX_HEADER)
    assert parse_json(text, "it") == {"a": 1}
    with pytest.raises(CheckpointError, match=f"it has {len(text) + 1} bytes; at most {len(text)} are read"):
        parse_json(text + b" ", "it")
    (tmp_path / "x").write_bytes(text)
    assert read_json(tmp_path / "x") == {"a": 1}
    (tmp_path / "x").write_bytes(text + b"    ")
    with pytest.raises(CheckpointError, match=f"has {len(text) + 1} bytes"):  # no more was read
        read_json(tmp_path / "x")


@pytest.mark.parametrize(("opening", "between", "closing"), [(b"[", b",1", b"]"), (b"", b"[", b""), (b"", b"{", b"")])
def test_json_has_at_most_so_many_values(
    opening: bytes, between: bytes, closing: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_JSON_VALUES", 9)
    text = opening + b"1" * bool(opening) + between * (9 - len(opening)) + closing
    if opening:
        assert parse_json(text, "it") == [1] * 9
    else:
        with pytest.raises(CheckpointError, match="it is not JSON in UTF-8"):
            parse_json(text, "it")
    with pytest.raises(CheckpointError, match="it holds more than 9 values"):
        parse_json(text + between, "it")


def test_json_is_charged_for_its_values_and_its_text(tmp_path: Path) -> None:
    for text, letters in (('{"a": [1, "b"]}', 1), ('["\N{GRINNING FACE}"]', 4), ('["\\u00ff"]', 4), ('["\\n"]', 1)):
        budget = Budget()
        parse_json(text.encode(), "it", budget)
        values = sum(map(text.count, ",[{"))
        parts = 50 * values + 110 * text.count(":") + 40 * (text.count('"') // 2)
        assert limits.MAX_MEMORY - budget.memory == parts + letters * len(text.encode())
        (tmp_path / "x").write_text(text)
        whole = Budget()
        read_json(tmp_path / "x", whole)
        assert whole.size == len(text.encode())
        assert whole.memory == budget.memory + whole.size


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "", '"\\ud800', "[" * 10_000])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match=r"it is not JSON in UTF-8|it holds half of a surrogate pair"):
        parse_json(text.encode(), "it")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "\\u0061": 1}}]'])
def test_a_key_that_comes_twice_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match="it names a key twice"):
        parse_json(text.encode(), "it")


def test_halves_of_surrogate_pairs_are_refused_and_pairs_are_read() -> None:
    high, low = [f"\\u{code:04x}" for code in (0xD800, 0xDBFF)], [f"\\u{code:04X}" for code in (0xDC00, 0xDFFF)]
    letters = [*high, *low, "\\ud7ff", "\\ue000", "\\\\ud800", "\\\\\\\\udc00", "x"]
    for one in letters:
        for other in letters:
            text = f'["{one}{other}"]'
            whole: list[str] = json.loads(text)
            if re.search("[\ud800-\udfff]", whole[0]):
                with pytest.raises(CheckpointError, match="it holds half of a surrogate pair, which is not text"):
                    parse_json(text.encode(), "it")
            else:
                assert parse_json(text.encode(), "it") == whole
