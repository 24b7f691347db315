"""The machine builds what Python's pickle builds of plain data, remembers the rest, and charges for all of it."""

from __future__ import annotations

import itertools
import pickle
import pickletools
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.limits import MAX_MEMORY, MAX_NAME
from conv2attn.convert.files.readers.common.stored import Source
from conv2attn.convert.files.readers.pickle_machine import OTHER, UNREAD, Name, PickleMachine, StandIn, Stream
from tests.hostile.measuring import ALLOWED

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=20), inner, max_size=4)
    ),
    max_leaves=10,
)
NUMBERED = itertools.count()


class Make(Protocol):
    """Makes a stream over some bytes, or their first, with a budget of its own."""

    def __call__(self, content: bytes, end: int | None = None) -> Stream:
        """The stream."""


@pytest.fixture
def stream(tmp_path: Path) -> Make:
    def make(content: bytes, end: int | None = None) -> Stream:
        path = tmp_path / str(next(NUMBERED))
        path.write_bytes(content)
        return Stream(Source(path), 0, len(content) if end is None else end)

    return make


def run(stream: Stream) -> object:
    """What a stream's next pickle holds; a call is a ``StandIn`` with its arguments, a persistent id a list of it."""
    return PickleMachine(
        persistent=lambda pid: [pid],
        call=lambda name, arguments: StandIn(name.path, arguments),
        budget=stream.budget,
    ).run(stream)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLAIN)
def test_plain_data_are_what_python_makes_of_them(stream: Make, protocol: int, data: object) -> None:
    assert repr(run(stream(pickle.dumps(data, protocol)))) == repr(data)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_is_shared_in_a_pickle_is_shared_in_what_is_read(stream: Make, protocol: int) -> None:
    many = [[number] for number in range(300)]  # more than a byte can number
    read = run(stream(pickle.dumps((many, many[::-1], many), protocol)))
    assert isinstance(read, tuple)
    assert read[0] is read[2]
    assert all(one is other for one, other in zip(read[0], reversed(read[1]), strict=True))


@pytest.mark.parametrize(
    ("opcodes", "wanted"),
    [
        (b"(K\1K\2l", [1, 2]),
        (b"(K\1K\2t", (1, 2)),
        (b"(U\1aK\2d", {"a": 2}),
        (b"K\1K\2\x86", (1, 2)),
        (b"K\1K\2K\3\x87", (1, 2, 3)),
        (b"K\1K\2K\3\x86\x86", (1, (2, 3))),
        (b"K\1K\0020", 1),
        (b"K\1(0", 1),
        (b"K\1(K\2K\0031", 1),
        (b"K\0012\x86", (1, 1)),
        (b"K\1K\0022\x87", (1, 2, 2)),
        (b"\x8f(K\1K\2\x90", [1, 2]),
        (b"(K\1K\2\x91", [1, 2]),
        (b"B\2\0\0\0ab", b"ab"),
        (b"C\2ab", b"ab"),
        (b"]K\1a", [1]),
        (b"](K\1K\2e", [1, 2]),
        (b"}U\1aK\1s", {"a": 1}),
        (b"}(U\1aK\1U\1bK\2u", {"a": 1, "b": 2}),
        (b"}(K\1K\1K\2K\2U\1bK\2u", {OTHER: None, "b": 2}),
    ],
)
def test_opcodes_do_what_pickletools_says(stream: Make, opcodes: bytes, wanted: object) -> None:
    assert run(stream(opcodes + b".")) == wanted


@pytest.mark.parametrize(
    ("opcodes", "arguments"),
    [
        (b"ca\nb\n(K\1K\2tR", (1, 2)),
        (b"U\1aU\1b\x93(K\1tR", (1,)),
        (b"ca\nb\n)\x81", ()),
        (b"ca\nb\n(K\1t\x81", ()),  # which __init__ would take
        (b"ca\nb\n(K\1t}\x92", ()),
        (b"(K\1K\2ia\nb\n", (1, 2)),
        (b"(ca\nb\nK\1K\2o", (1, 2)),
    ],
)
def test_every_way_to_call_something_is_a_call_of_that_name(
    stream: Make, opcodes: bytes, arguments: tuple[object, ...]
) -> None:
    called = run(stream(opcodes + b"."))
    assert isinstance(called, StandIn)
    assert (called.kind, called.state, called.entries) == ("a.b", arguments, None)


def test_a_call_of_what_has_no_name_or_with_no_tuple_is_not_made(stream: Make) -> None:
    for opcodes in (b"K\1)R", b"ca\nb\n]R"):
        called = run(stream(opcodes + b"."))
        assert isinstance(called, StandIn)
        assert "has no name" in called.kind


def test_persistent_ids_are_texts_or_what_is_on_the_stack(stream: Make) -> None:
    assert run(stream(b"Pabc\n.")) == ["abc"]
    assert run(stream(b"K\1Q.")) == [1]
    assert run(stream(b"ca\nb\n.")) == Name("a.b")


def test_an_object_holds_its_state_and_the_entries_that_were_put_into_it(stream: Make) -> None:
    built = run(stream(b"ca\nb\n)\x81}U\1xK\1sb}U\1yK\2sb(U\1zK\3uU\1tK\4s."))
    assert isinstance(built, StandIn)
    assert (built.state, built.entries) == ({"x": 1, "y": 2}, {"z": 3, "t": 4})
    above = run(stream(b"K\1ca\nb\n)\x81}U\1xK\1sbK\7b\x86."))
    assert isinstance(above, tuple)
    built = above[1]
    assert isinstance(built, StandIn)
    assert built.state == 7


def test_pickles_follow_each_other_and_none_reads_beyond_its_stream(stream: Make) -> None:
    one, two = pickle.dumps([1], 2), pickle.dumps([2], 0)
    both = stream(one + two + b"rest")
    assert run(both) == [1]
    assert both.position == both.tell() == len(one)
    assert run(both) == [2]
    assert both.position == len(one) + len(two)
    for end in range(len(one)):
        cut = stream(one + two, end)
        with pytest.raises((EOFError, ValueError, IndexError, struct.error)):
            run(cut)
        assert cut.position <= end
    with pytest.raises(ValueError, match=r"newline|invalid"):
        run(line := stream(b"I12345\n.", 4))
    assert line.position == 4


@pytest.mark.parametrize("kind", [b"X", b"B", b"T"])
def test_texts_are_read_up_to_the_length_of_the_longest_name(stream: Make, kind: bytes) -> None:
    def text(length: int) -> bytes:
        return kind + struct.pack("<I", length) + b"a" * length + b"."

    kept = run(stream(text(MAX_NAME)))
    assert isinstance(kept, str | bytes)
    assert len(kept) == MAX_NAME
    assert run(stream(text(MAX_NAME + 1))) is UNREAD


@pytest.mark.parametrize("opcodes", [b"(U\1ad", b"}(U\1au", b"}(U\1aNU\1bu"])
def test_a_dictionary_has_a_value_for_each_key(stream: Make, opcodes: bytes) -> None:
    with pytest.raises(ValueError, match="shorter"):
        run(stream(opcodes + b"."))


def test_half_of_a_surrogate_pair_is_no_text(stream: Make) -> None:
    for text in ("\ud800", "\udfff", "é\udc00"):
        assert run(stream(pickle.dumps([text], 2))) == [UNREAD]
        with pytest.raises(CheckpointError, match="a key that is not text, or longer than 4096 bytes"):
            run(stream(pickle.dumps({text: 1}, 2)))
    assert run(stream(pickle.dumps(["\ud7ff\ue000😀"], 2))) == ["\ud7ff\ue000😀"]


def test_the_memo_has_numbers_below_2_to_the_32(stream: Make) -> None:
    assert run(stream(b"K\1p%d\n0g%d\n." % (2**32 - 1, 2**32 - 1))) == 1
    assert run(stream(b"K\1p0\n0g0\n.")) == 1
    for number in (2**32, 2**32 + 1, -1):
        with pytest.raises(CheckpointError, match="not a number below"):
            run(stream(b"K\1p%d\n." % number))


def test_each_opcode_is_a_step_and_a_given_state_as_many_as_it_has_entries(stream: Make) -> None:
    for content, more in (
        (pickle.dumps([{"a": (1, 2.5, None)}] * 3, 2), 0),
        (b"ca\nb\n)\x81}(U\1xK\1U\1yK\1ub.", 2),
    ):
        opcodes = len(list(pickletools.genops(content))) - 1 + more  # the last one, STOP, is none
        enough = stream(content)
        enough.budget.steps = opcodes
        run(enough)
        assert enough.budget.steps == 0
        short = stream(content)
        short.budget.steps = opcodes - 1
        with pytest.raises(CheckpointError, match="more steps"):
            run(short)


def test_a_budget_is_spent_to_its_last_byte(stream: Make) -> None:
    whole = stream(b"].")
    before = whole.budget.memory
    run(whole)
    charged = before - whole.budget.memory
    enough, short = stream(b"]."), stream(b"].")
    enough.budget.memory, short.budget.memory = charged, charged - 1
    assert run(enough) == []
    with pytest.raises(CheckpointError, match="more memory"):
        run(short)


BUILDS = {
    "a list": b"]",
    "a list of marked items": b"(NNl",
    "a dictionary": b"}",
    "a dictionary of marked items": b"(U\1aNd",
    "an entry": b"}U\1aNs",
    "entries": b"}(U\1aNU\1bNu",
    "a set": b"\x8f",
    "a tuple": b"(NNNNt",
    "a tuple of one": b"N\x85",
    "a number": b"\x8a\xff" + b"\x7f" * 255,
    "a text": b"X\x00\x01\x00\x00" + b"a" * 256,
    "a wide text": b"X\x04\x01\x00\x00" + "😀".encode() + b"a" * 256,
    "bytes": b"B\x00\x01\x00\x00" + b"a" * 256,
    "a name": b"c" + b"a" * 100 + b"\nb\n",
    "a call": b"ca\nb\n)R",
    "a call without a name": b"N)R",
    "a call of a name that is kept": b"h\1)R",
    "a state": b"ca\nb\n)\x81}(U\1aNU\1bNU\1cNub",
    "entries of an object": b"ca\nb\n)\x81(U\1aNU\1bNu",
    "a persistent id": b"NQ",
    "nothing": b"N",
    "the same again": b"h\0",
    "an empty tuple": b")",
}


@pytest.mark.parametrize("what", BUILDS)
def test_what_is_built_takes_no_more_than_what_is_charged_and_the_margin_of_the_promise(
    what: str, stream: Make
) -> None:
    """Twice the file and 256 MB are promised; a budget refuses what is charged beyond the file and 192 MB."""
    reading = stream(b"ca\nb\nq\1]q\0(" + BUILDS[what] * 2000 + b"l.")
    before = reading.budget.memory
    tracemalloc.start()
    try:
        kept = run(reading)
        took, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    charged = before - reading.budget.memory
    assert isinstance(kept, list)
    assert took <= charged * ALLOWED / MAX_MEMORY + 2000


def charged(stream: Stream) -> int:
    before = stream.budget.memory
    run(stream)
    return before - stream.budget.memory


@pytest.mark.parametrize(
    ("begin", "end", "times"),
    [(b"}(", b"u", 1), (b"(", b"d", 1), (b"ca\nb\n)\x81(", b"u", 1), (b"ca\nb\n)\x81}(", b"ub", 2)],
    ids=["entries", "dictionary", "entries of an object", "state, which is copied"],
)
def test_each_entry_is_charged_for_what_it_takes(stream: Make, begin: bytes, end: bytes, times: int) -> None:
    """An entry takes most in a dictionary of one; the margin is that of the promise."""

    def more(count: int) -> int:
        """What is charged for so many entries beside their keys and values."""
        items = b"".join(b"U\1%cN" % number for number in range(33, 33 + count))
        return charged(stream(begin + items + end + b".")) - charged(stream(b"(" + items + b"1N."))

    one = more(1) - more(0)
    assert one * ALLOWED >= times * (sys.getsizeof({"a": None}) - sys.getsizeof({})) * MAX_MEMORY
    assert [more(count) - more(0) for count in range(90)] == [count * one for count in range(90)]


@pytest.mark.parametrize("change", [b"Na", b"(Ne", b"K\0Ns", b"(K\0Nu", b"(N\x90", b"Nb", b"}b"])
@pytest.mark.parametrize("target", [b"K\1", b"NQ", b"ca\nb\n", b")"])
def test_what_is_changed_in_place_is_a_container_or_an_object(stream: Make, target: bytes, change: bytes) -> None:
    """Of a persistent id these tests make a list, which alone can be appended to."""
    if target == b"NQ" and change in (b"Na", b"(Ne", b"(N\x90"):
        assert isinstance(run(stream(target + change + b".")), list)
        return
    with pytest.raises(CheckpointError, match="changes a tensor, or something else that no checkpoint changes"):
        run(stream(target + change + b"."))


@pytest.mark.parametrize("change", [b"Na", b"(Ne", b"(N\x90"])
def test_an_object_remembers_that_something_was_appended_to_it(stream: Make, change: bytes) -> None:
    found = run(stream(b"ca\nb\n)R" + change + b"."))
    assert isinstance(found, StandIn)
    assert found.entries == {OTHER: None}


def test_the_copy_of_a_dictionary_is_charged_as_its_entries_are(stream: Make) -> None:
    items = b"".join(b"U\1%cN" % number for number in range(33, 83))
    entries = charged(stream(b"}(" + items + b"u.")) - charged(stream(b"}(" + items + b"1."))
    copied = charged(stream(b"ca\nb\n)\x81}(" + items + b"ub.")) - charged(stream(b"ca\nb\n)\x81}(" + items + b"u0."))
    assert copied == entries


def test_what_holds_itself_is_told_apart_without_going_into_it() -> None:
    one, other = StandIn("a"), StandIn("a")
    one.state, other.state = [one], [other]
    assert one == one.state[0]
    assert one != other


def test_the_name_of_a_class_is_charged_for_each_of_its_letters(stream: Make) -> None:
    assert charged(stream(b"c" + b"a" * 300 + b"\nb\n.")) == charged(stream(b"c" + b"a" * 100 + b"\nb\n.")) + 200


@pytest.mark.parametrize("put", [b"\x94", b"q%c", b"r%c\0\0\0", b"p%d\n"])
def test_the_memo_is_charged_while_it_is_kept(stream: Make, put: bytes) -> None:
    content = b"N" + b"".join(put % number if b"%" in put else put for number in range(100)) + b"."
    kept = stream(content)
    before = kept.budget.memory
    run(kept)
    assert before - kept.budget.memory < 100
    short = stream(content)
    short.budget.memory = 100 * 90  # bytes; an entry of a dictionary takes 96
    with pytest.raises(CheckpointError, match="more memory"):
        run(short)


def test_marks_are_charged_while_they_are_open(stream: Make) -> None:
    closed = stream(b"N" + b"(1" * 1000 + b".")
    before = closed.budget.memory
    run(closed)
    assert before - closed.budget.memory < 1000
    open_ = stream(b"N" + b"(" * 1000 + b".")
    before = open_.budget.memory
    with pytest.raises(IndexError):
        run(open_)
    assert before - open_.budget.memory >= 1000 * 56  # an empty list


@pytest.mark.parametrize(
    ("opcodes", "reason"),
    [
        (b"\x82\1", "the opcode EXT1"),
        (b"\x97", "the opcode NEXT_BUFFER"),
        (b"\xff", "the opcode unknown"),
        (b"K\1K\2\x93", "names a class by what is not text"),
        (b"U\1aK\2\x93", "names a class by what is not text"),
        (b"c" + b"a" * 5000 + b"\nb\n", "names a class by what is not text, or longer than 4096 bytes"),
    ],
)
def test_what_no_checkpoint_needs_is_refused_by_name(stream: Make, opcodes: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        run(stream(opcodes + b"."))
