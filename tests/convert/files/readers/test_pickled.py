"""PyTorch's pickles hold the tensors that torch loads from them; one that contradicts itself is refused."""

from __future__ import annotations

import io
import itertools
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers import pickled
from conv2attn.convert.files.readers.archive import open_archive
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.pickle_machine import OTHER, Name, StandIn
from conv2attn.convert.files.readers.pickled import DATA, read_archive, read_legacy
from tests.hostile.files import EMPTY_ORDERED_DICT, FLOATS, tensor, value, write_zip

MAGIC, PROTOCOL, SYSTEM = 0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.bool, torch.complex128, torch.complex64),
]
NUMBERED = itertools.count()


def read(path: Path, budget: Budget | None = None) -> object:
    """What a file holds, in either form."""
    source = Source(path, budget)
    if source.bytes(0, 2) == b"PK":
        archive = open_archive(source)
        return read_archive(archive, archive.root(DATA) or "")
    return read_legacy(source)


def legacy(path: Path, *parts: object, rest: bytes = b"") -> Path:
    """The legacy form of these pickles, given as what they hold or as their bytes, and of what follows them."""
    path.write_bytes(b"".join(part if isinstance(part, bytes) else pickle.dumps(part, 2) for part in parts) + rest)
    return path


def one(opcodes: bytes) -> bytes:
    """A pickle of one value, of whose storages none is a view."""
    return b"\x80\x02" + opcodes.replace(value("cpu") + value(24), value("cpu") + value(24) + b"N") + b"."


def stored(count: int, numbers: bytes = FLOATS) -> bytes:
    """A storage, behind the pickles."""
    return struct.pack("<q", count) + numbers


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 3), st.integers(0, 3)), max_size=4), st.booleans())
def test_tensors_and_views_of_them_are_those_that_torch_loads(
    tmp_path: Path, kinds: list[tuple[torch.dtype, int, int]], in_archive: bool
) -> None:
    saved: dict[str, torch.Tensor] = {}
    for place, (dtype, rows, columns) in enumerate(kinds):
        numbers = torch.arange(rows * columns).reshape(rows, columns).to(dtype)
        saved |= {f"{place}": numbers, f"{place}.t": numbers.T, f"{place}.part": numbers[rows // 2 :, columns // 2 :]}
    path = tmp_path / str(next(NUMBERED))
    torch.save(saved, path, _use_new_zipfile_serialization=in_archive)
    found = read(path)
    assert isinstance(found, dict)
    assert list(found) == list(saved)
    for key, each in saved.items():
        assert isinstance(found[key], StoredTensor)
        torch.testing.assert_close(found[key].read(), each, rtol=0, atol=0)


@pytest.mark.parametrize("in_archive", [False, True])
def test_what_is_no_tensor_is_plain_or_stands_for_what_it_was(in_archive: bool, tmp_path: Path) -> None:
    plain = {"a": [1, (2.5, None)], "b": {"c": True}, "size": torch.Size([2, 3]), "ordered": OrderedDict(x=1)}
    odd = {
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.empty(2, device="meta"),
        "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
    }
    kept = {"parameter": torch.nn.Parameter(torch.ones(2))}
    with_state = torch.nn.Parameter(torch.full((2,), 3.0))
    with_state.note = "kept"  # type: ignore[attr-defined]
    torch.save(
        {**plain, **odd, **kept, "with state": with_state, "a set": {7}, "an object": torch.device("cpu")},
        tmp_path / "w",
        _use_new_zipfile_serialization=in_archive,
    )
    found = read(tmp_path / "w")
    assert isinstance(found, dict)
    assert {key: found[key] for key in plain} == {**plain, "size": (2, 3)}
    assert {key: found[key].kind for key in odd if isinstance(found[key], OddTensor)} == {
        "sparse": "sparse",
        "meta": "meta",
        "conjugated": "conjugated or negated",
    }
    assert [found[key].read().tolist() for key in (*kept, "with state")] == [[1, 1], [3, 3]]
    assert found["a set"] == [7]
    assert isinstance(found["an object"], StandIn)
    assert found["an object"].kind == "torch.device"


def test_a_set_is_a_copy_of_its_list_and_an_ordered_dict_has_the_pairs_of_its_list(tmp_path: Path) -> None:
    given = b"c__builtin__\nset\n(]q\x09K\1atR"
    pairs = b"ccollections\nOrderedDict\n(" + value([["a", 1], ("b", 2), (1, 2)]) + b"tR"
    content = one(b"(" + given + b"h\x09" + pairs + EMPTY_ORDERED_DICT + b"t")
    found = read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, content, []))
    assert found == ([1], [1], {"a": 1, "b": 2, OTHER: None}, {})
    assert isinstance(found, tuple)
    assert found[0] is not found[1]


@pytest.mark.parametrize("given", [{"a": 1, 2: 3}, (("a", 1), (2, 3)), [["a", 1], [2, 3]]])
def test_an_ordered_dict_is_what_it_is_made_of_and_keys_that_are_not_texts_are_seen(
    given: object, tmp_path: Path
) -> None:
    content = one(b"ccollections\nOrderedDict\n(" + value(given) + b"tR")
    assert read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, content, [])) == {"a": 1, OTHER: None}


@pytest.mark.parametrize("given", [[("a", 1), ("b",)], [("a", 1, 2)], ["ab"], [5], 5, None, "ab"])
def test_an_ordered_dict_of_anything_else_is_not_taken_for_an_empty_one(given: object, tmp_path: Path) -> None:
    content = one(b"ccollections\nOrderedDict\n(" + value(given) + b"tR")
    found = read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, content, []))
    assert isinstance(found, StandIn)
    assert (found.kind, found.entries) == ("collections.OrderedDict", None)


def test_a_pair_whose_key_is_too_long_is_not_left_out(tmp_path: Path) -> None:
    content = one(b"ccollections\nOrderedDict\n(" + value([("w" * 5000, 1)]) + b"tR")
    with pytest.raises(CheckpointError, match="a key that is not text, or longer than 4096 bytes"):
        read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, content, []))


@pytest.mark.parametrize("other", ["BFloat16Storage", "ShortStorage", "QInt32Storage", "QUInt4x2Storage"])
@pytest.mark.parametrize("in_archive", [False, True])
def test_a_storage_is_of_one_kind(other: str, in_archive: bool, tmp_path: Path) -> None:
    for kinds in (("HalfStorage", "HalfStorage"), ("HalfStorage", other), (other, "HalfStorage")):
        both = one(b"(" + b"".join(tensor(storage=kind) for kind in kinds) + b"t")
        if in_archive:
            write_zip(tmp_path / "w", {"data.pkl": both, "data/0": FLOATS})
        else:
            legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, both, ["0"], rest=stored(24, FLOATS[:48]))
        if kinds[0] == kinds[1]:
            read(tmp_path / "w")
        else:
            with pytest.raises(CheckpointError, match="says of the storage '0' that it is of two kinds"):
                read(tmp_path / "w")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((MAGIC, 1000, SYSTEM), "a pickle that torch.save did not write"),
        ((MAGIC + 1, PROTOCOL, SYSTEM), "a pickle that torch.save did not write"),
        (({"w": 1},), "a pickle that torch.save did not write"),
        ((MAGIC, PROTOCOL, {"little_endian": False}), "big-endian machine"),
        ((MAGIC, PROTOCOL, {"little_endian": 1}), "big-endian machine"),
        ((MAGIC, PROTOCOL, {}), "big-endian machine"),
        ((MAGIC, PROTOCOL, [True]), "big-endian machine"),
        ((MAGIC, PROTOCOL, one(tensor())), "refers to a storage where none can be"),
        ((MAGIC, PROTOCOL, SYSTEM, one(tensor()), {"0": 1}), "its storages are not listed"),
        ((MAGIC, PROTOCOL, SYSTEM, one(tensor()), one(tensor())), "refers to a storage where none can be"),
        ((MAGIC, PROTOCOL, SYSTEM, one(tensor()), [0]), "listed twice or belongs to no tensor"),
        ((MAGIC, PROTOCOL, SYSTEM, one(tensor()), ["1"]), "listed twice or belongs to no tensor"),
        ((MAGIC, PROTOCOL, SYSTEM, one(tensor()), ["0", "0"]), "listed twice or belongs to no tensor"),
    ],
)
def test_a_legacy_file_that_is_not_torch_s_is_refused_by_what_it_lacks(
    parts: tuple[object, ...], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        read(legacy(tmp_path / "w", *parts, rest=stored(24)))


@pytest.mark.parametrize("count", [24, 12, 48, 96])  # of 4, 8, 2 and 1 bytes
def test_a_legacy_storage_has_a_count_that_divides_its_bytes(count: int, tmp_path: Path) -> None:
    found = read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, one(tensor()), ["0"], rest=stored(count)))
    assert isinstance(found, StoredTensor)
    assert found.read().flatten().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [-24, -1, 0, 23, 25, 97])
def test_a_legacy_storage_of_another_length_than_declared_is_refused(count: int, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a storage '0' that is not as long as it declares"):
        read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, one(tensor()), ["0"], rest=stored(count)))


def test_a_legacy_storage_of_nothing_has_a_count_of_zero(tmp_path: Path) -> None:
    empty = tensor((0,), stride=(1,), count=0).replace(value("cpu") + value(0), value("cpu") + value(0) + b"N")
    for count in (0, 1):
        path = legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, one(empty), ["0"], rest=stored(count, b""))
        if count:
            with pytest.raises(CheckpointError, match="not as long as it declares"):
                read(path)
        else:
            found = read(path)
            assert isinstance(found, StoredTensor)
            assert found.read().shape == (0,)


def test_a_legacy_file_has_so_many_storages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "MAX_TENSORS", 1)
    read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, one(tensor()), ["0"], rest=stored(24)))
    with pytest.raises(CheckpointError, match="its storages are not listed"):
        read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, one(tensor()), ["0", "0"], rest=stored(24)))


def test_a_pickle_of_an_archive_ends_with_its_entry(tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": one(tensor())[:-1], "data/0": FLOATS})
    with pytest.raises(EOFError):
        read(tmp_path / "w")


@pytest.mark.parametrize("counts", [(24, 23), (24, 25), (0, 24)])
def test_a_legacy_storage_has_one_length(counts: tuple[int, int], tmp_path: Path) -> None:
    both = b"(" + b"".join(tensor((0,), stride=(1,), count=count) for count in counts) + b"t"
    with pytest.raises(CheckpointError, match="declares the storage '0' with two lengths"):
        read(legacy(tmp_path / "w", MAGIC, PROTOCOL, SYSTEM, one(both), ["0"], rest=stored(24)))


def test_a_storage_of_an_archive_may_be_longer_than_declared_and_not_shorter(tmp_path: Path) -> None:
    for count in (6, 23, 24):
        write_zip(tmp_path / "w", {"data.pkl": one(tensor(count=count)), "data/0": FLOATS})
        found = read(tmp_path / "w")
        assert isinstance(found, StoredTensor)
        assert found.read().flatten().tolist() == [0, 1, 2, 3, 4, 5]
    write_zip(tmp_path / "w", {"data.pkl": one(tensor(count=25)), "data/0": FLOATS})
    with pytest.raises(CheckpointError, match="a storage '0' that is shorter than it declares"):
        read(tmp_path / "w")


@pytest.mark.parametrize(("order", "refused"), [(b"little", False), (b"big", True), (b"middle", True), (b"", True)])
def test_an_archive_of_another_byte_order_is_refused(order: bytes, refused: bool, tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": one(tensor()), "data/0": FLOATS, "byteorder": order})
    if refused:
        with pytest.raises(CheckpointError, match="written on a big-endian machine"):
            read(tmp_path / "w")
    else:
        assert isinstance(read(tmp_path / "w"), StoredTensor)


def persistent(*parts: object) -> bytes:
    """A pickle of a persistent id of these parts, of which bytes are opcodes."""
    return b"\x80\x02(" + b"".join(part if isinstance(part, bytes) else value(part) for part in parts) + b"tQ."


FLOAT = b"ctorch\nFloatStorage\n"


@pytest.mark.parametrize(
    "parts",
    [
        ("storage", FLOAT, "0", "cpu", 24, (0, 1, 2)),
        ("storage", FLOAT, 0, "cpu", 24),
        ("storage", FLOAT, "0", "cpu", 24.0),
        ("storage", FLOAT, "0", "cpu", True),
        ("storage", FLOAT, "0", "cpu", -1),
        ("storage", FLOAT, "0", "cpu", 2**59),
        ("storage", FLOAT, "0", "cpu", 2**59 + 1),
    ],
)
def test_a_storage_that_is_described_by_something_else_is_refused(parts: tuple[object, ...], tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": persistent(*parts), "data/0": FLOATS})
    with pytest.raises(CheckpointError, match="describes a storage by something that does not describe one"):
        read(tmp_path / "w")


@pytest.mark.parametrize(
    "parts",
    [
        ("storage", FLOAT, "0", "cpu"),
        ("storage", FLOAT, "0", "cpu", 24, None, None),
        ("store", FLOAT, "0", "cpu", 24),
        ("module", FLOAT, "a file", "its text", "more"),
        ("storage", "FloatStorage", "0", "cpu", 24),
        (),
    ],
)
def test_what_is_no_storage_is_refused(parts: tuple[object, ...], tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": persistent(*parts), "data/0": FLOATS})
    with pytest.raises(CheckpointError, match="refers to something that is no storage"):
        read(tmp_path / "w")
    write_zip(tmp_path / "w", {"data.pkl": one(b"K\1Q"), "data/0": FLOATS})
    with pytest.raises(CheckpointError, match="refers to something that is no storage"):
        read(tmp_path / "w")


def test_the_storages_that_are_read_are_those_of_numbers_that_torch_has(tmp_path: Path) -> None:
    for parts in (
        ("storage", FLOAT, "0", "cpu", 24),
        ("storage", FLOAT, "0", "cpu", 24, None),
        ("storage", b"ctorch\nOddStorage\n", "9", "cpu", 24),
    ):
        write_zip(tmp_path / "w", {"data.pkl": persistent(*parts), "data/0": FLOATS})
        read(tmp_path / "w")
    write_zip(tmp_path / "w", {"data.pkl": persistent("storage", FLOAT, "0", "cpu", 2**59 - 1), "data/0": FLOATS})
    with pytest.raises(CheckpointError, match="shorter than it declares"):
        read(tmp_path / "w")


class Labelled(torch.Tensor):
    """A tensor with a class of its own."""


def test_a_tensor_of_a_subclass_is_the_numbers_that_it_holds(tmp_path: Path) -> None:
    labelled = torch.arange(4.0).as_subclass(Labelled)
    torch.save({"w": labelled}, tmp_path / "w")
    found = read(tmp_path / "w")
    assert isinstance(found, dict)
    assert found["w"].read().tolist() == [0, 1, 2, 3]


def test_a_class_that_is_kept_with_its_text_is_its_name(tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": persistent("module", FLOAT, "a file", "its text")})
    assert read(tmp_path / "w") == Name("torch.FloatStorage")


SET = b"cbuiltins\nset\n"
OF_TYPE = b"ctorch._tensor\n_rebuild_from_type_v2\n"
PLAIN = b"ctorch._utils\n_rebuild_parameter\n"


@pytest.mark.parametrize(
    "call",
    [
        SET + b"(" + value([1]) + value([2]) + b"tR",
        SET + b")R",
        OF_TYPE + b"(" + PLAIN + value("a class") + value((1,)) + b"tR",
        OF_TYPE + b"(" + PLAIN + value("a class") + value((1,)) + value({}) + value(0) + b"tR",
        OF_TYPE + b"(" + PLAIN + value("a class") + value([1]) + value({}) + b"tR",
        OF_TYPE + b"(" + value("no name") + value("a class") + value((1,)) + value({}) + b"tR",
        OF_TYPE + b"(" + OF_TYPE + b"N(" + PLAIN + b"NK\1\x85NtNtR",  # one within the other
        PLAIN + b")R",
        b"ctorch._utils\n_rebuild_unheard_of\n)R",
        b"cnumpy\n_rebuild_parameter\n(K\1tR",
    ],
)
def test_a_call_that_torch_does_not_make_stands_for_what_it_was(call: bytes, tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": one(call)})
    assert isinstance(read(tmp_path / "w"), StandIn)


def test_what_a_subclass_is_rebuilt_of_is_what_the_call_within_gives(tmp_path: Path) -> None:
    for outer, inner in (
        (OF_TYPE, PLAIN),
        (OF_TYPE.replace(b"_tensor", b"_utils"), PLAIN.replace(b"_utils", b"_tensor")),
    ):
        write_zip(tmp_path / "w", {"data.pkl": one(outer + b"(" + inner + b"NK\1\x85NtR")})
        assert read(tmp_path / "w") == 1


def test_each_storage_and_each_pair_of_a_list_is_charged(tmp_path: Path) -> None:
    def spent(opcodes: bytes) -> tuple[int, int]:
        with io.BytesIO() as held:
            with zipfile.ZipFile(held, "w") as archive:
                archive.writestr("a/data.pkl", one(opcodes))
                for number in range(3):
                    archive.writestr(f"a/data/{number}", FLOATS)
            (tmp_path / "w").write_bytes(held.getvalue())
        source = Source(tmp_path / "w")
        archive_ = open_archive(source)
        memory, steps = source.budget.memory, source.budget.steps
        read_archive(archive_, "a/")
        return memory - source.budget.memory, steps - source.budget.steps

    same = spent(b"(" + tensor(key="0") * 3 + b"t")
    other = spent(b"(" + b"".join(tensor(key=str(number)) for number in range(3)) + b"t")
    assert other[0] - same[0] == 2 * 100

    def again(name: bytes, count: int) -> tuple[int, int]:
        """What is charged for another copy of a list of pairs."""
        pairs = b"](" + b"".join(b"(U\1%cK\1t" % (33 + number) for number in range(count)) + b"eq\x09"
        copy = name + b"(h\x09tR"
        (memory, steps), (more_memory, more_steps) = (
            spent(b"(" + pairs + copy + b"t"),
            spent(b"(" + pairs + 2 * copy + b"t"),
        )
        return more_memory - memory, more_steps - steps

    for name, entry in ((b"ccollections\nOrderedDict\n", 96), (SET, 16)):
        few, many = again(name, 10), again(name, 60)
        assert many[0] - few[0] == 50 * entry
        assert many[1] - few[1] == 50
