"""No two names look alike, however they are shortened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conv2attn.proofs.terminal.names import short_names

names = st.text(alphabet="ab.", min_size=1, max_size=90)
long_names = st.builds(lambda start, middle, end: start * 30 + middle + end * 30, *[st.text("ab", max_size=4)] * 3)


@given(st.lists(names | long_names, min_size=1, max_size=8), st.integers(8, 70))
def test_short_names_are_short_and_stay_different(given_names: list[str], limit: int) -> None:
    shown = short_names(given_names, limit)
    assert len(shown) == len(given_names)
    pairs = set(zip(given_names, shown, strict=True))
    assert len({name for name, _ in pairs}) == len({short for _, short in pairs}) == len(pairs)
    for name, short in pairs:
        assert short == name or (len(short) <= limit and name.startswith(short[0]) and name.endswith(short[-1]))
