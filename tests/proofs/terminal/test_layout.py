"""Tables fit the terminal, whatever the names in them, and no two names look alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conv2attn.proofs.terminal.layout import blocks, column_widths, short_names

names = st.text(alphabet="ab.", min_size=1, max_size=90)
long_names = st.builds(lambda start, middle, end: start * 30 + middle + end * 30, *[st.text("ab", max_size=4)] * 3)
words = st.lists(st.text(alphabet="xy1,", min_size=1, max_size=12), min_size=1, max_size=5).map(" ".join)


@given(st.lists(names | long_names, min_size=1, max_size=8), st.integers(8, 70))
def test_short_names_are_short_and_stay_different(given_names: list[str], limit: int) -> None:
    shown = short_names(given_names, limit)
    assert len(shown) == len(given_names)
    pairs = set(zip(given_names, shown, strict=True))
    assert len({name for name, _ in pairs}) == len({short for _, short in pairs}) == len(pairs)
    for name, short in pairs:
        assert short == name or (len(short) <= limit and name.startswith(short[0]) and name.endswith(short[-1]))


def test_a_name_keeps_its_start_and_its_end() -> None:
    assert short_names(["encoder." + "block." * 30 + "conv1"], 20) == ["encoder.b\u2026lock.conv1"]
    assert short_names(["a" * 90 + "x" + "b" * 90, "a" * 90 + "y" + "b" * 90], 20)[0] == "a" * 90 + "x" + "b" * 90


@given(st.lists(st.tuples(names | long_names, words, words, words), min_size=1, max_size=4), st.integers(10, 200))
def test_columns_take_the_width_and_break_no_word_but_a_name(rows: list[tuple[str, ...]], width: int) -> None:
    columns = list(zip(*rows, strict=True))
    widths = column_widths(columns, width)
    natural = [max(map(len, column)) for column in columns]
    assert column_widths(columns) == natural
    longest = [max(len(word) for text in column for word in text.split(" ")) for column in columns]
    longest[0] = min(longest[0], 12)
    if widths is None:
        assert sum(longest) > width
        return
    assert sum(widths) == min(width, sum(natural))
    assert all(least <= given <= most for least, given, most in zip(longest, widths, natural, strict=True))


def test_a_row_that_does_not_fit_is_a_block_of_lines() -> None:
    assert blocks(("layer", "heads"), [("stem", "9"), ("head", "1")]) == [
        *("stem", "  heads: 9", ""),
        *("head", "  heads: 1", ""),
    ]
