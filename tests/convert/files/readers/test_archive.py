"""An entry is found where its bytes lie; an archive that two programs could read differently is refused."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers import archive as reading
from conv2attn.convert.files.readers.archive import Archive, open_archive
from conv2attn.convert.files.readers.common.limits import MAX_MEMORY
from conv2attn.convert.files.readers.common.stored import Source
from tests.hostile.measuring import ALLOWED

CONTENTS = {"a/data.pkl": b"pickled", "a/data/0": bytes(range(200)), "a/data/empty": b"", "a/é/😀": b"named"}
DIRECTORY, LOCAL = b"PK\1\2", b"PK\3\4"
FLAGS, COMPRESSED_SIZE, OFFSET = 8, 20, 42  # places in an entry of the directory


def zipped(path: Path, contents: dict[str, bytes] = CONTENTS, *, comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content)
        archive.comment = comment
    return path


def opened(path: Path) -> Archive:
    return open_archive(Source(path))


def changed(path: Path, place: int, content: bytes, *, entry: int = 0) -> Path:
    """With these bytes at a place in an entry of the directory."""
    whole, begin = path.read_bytes(), -1
    for _ in range(entry + 1):
        begin = whole.index(DIRECTORY, begin + 1)
    path.write_bytes(whole[: begin + place] + content + whole[begin + place + len(content) :])
    return path


@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_an_entry_is_read_where_it_lies(comment: bytes, tmp_path: Path) -> None:
    archive = opened(zipped(tmp_path / "w", comment=comment))
    assert list(archive.entries) == list(CONTENTS)
    for name, content in CONTENTS.items():
        assert archive.read(name, limit=len(content)) == archive.read(name, limit=10**6) == content
    with pytest.raises(CheckpointError, match=r"'a/data.pkl' has more than 6 bytes"):
        archive.read("a/data.pkl", limit=6)
    with pytest.raises(CheckpointError, match="lacks the entry 'a/x'"):
        archive.read("a/x", limit=100)


def test_an_entry_begins_after_its_name_and_its_extra_field(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w", "w") as archive:
        info = zipfile.ZipInfo("a/data/0")
        info.extra = b"FB\x05\0padded"[:9]  # so torch.save aligns numbers
        archive.writestr(info, b"numbers")
    assert opened(tmp_path / "w").read("a/data/0", limit=7) == b"numbers"


def test_a_name_is_in_the_letters_that_its_entry_says(tmp_path: Path) -> None:
    zipped(tmp_path / "w", {"a/x": b"1"})
    whole = (tmp_path / "w").read_bytes()
    (tmp_path / "w").write_bytes(whole.replace(b"a/x", b"a/\x82"))  # an e with an accent, on the first PC
    for flags in (0, 2):
        assert list(opened(changed(tmp_path / "w", FLAGS, struct.pack("<H", flags))).entries) == ["a/é"]


def test_an_archive_without_entries_has_none(tmp_path: Path) -> None:
    archive = opened(zipped(tmp_path / "w", {}))
    assert (archive.entries, archive.root("data.pkl")) == ({}, None)


def test_a_compressed_entry_is_there_but_is_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w", "w") as archive:
        archive.writestr("a/stored", b"1")
        archive.writestr("a/deflated", b"2" * 100, compress_type=zipfile.ZIP_DEFLATED)
        archive.writestr("a/incompressible", b"3", compress_type=zipfile.ZIP_DEFLATED)
    found = opened(tmp_path / "w")
    assert found.read("a/stored", limit=1) == b"1"
    for name in ("a/deflated", "a/incompressible"):
        with pytest.raises(CheckpointError, match=f"compressed entry '{name}', which PyTorch never writes"):
            found.read(name, limit=100)
    same_length = changed(zipped(tmp_path / "w", {"a/x": b"1"}), 10, b"\x08\0")  # deflated, it says
    with pytest.raises(CheckpointError, match="compressed entry"):
        opened(same_length).read("a/x", limit=1)
    for sizes in ((1, 2), (2, 1)):  # in the archive, and once expanded
        other_length = changed(zipped(tmp_path / "w", {"a/x": b"12"}), COMPRESSED_SIZE, struct.pack("<II", *sizes))
        with pytest.raises(CheckpointError, match="compressed entry"):
            opened(other_length).read("a/x", limit=2)


def test_an_archive_that_was_written_to_a_pipe_has_lengths_behind_its_entries_and_is_read(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        """A file that cannot go back, to put a length before what it is the length of."""

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

    with Pipe() as pipe:
        with zipfile.ZipFile(pipe, "w") as archive:
            archive.writestr("a/x", b"1")
            archive.writestr("a/y", b"2")
        (tmp_path / "w").write_bytes(pipe.getvalue())
    found = opened(tmp_path / "w")
    assert [found.read(name, limit=1) for name in ("a/x", "a/y")] == [b"1", b"2"]


def test_of_names_that_differ_in_case_neither_is_read_and_all_others_are(tmp_path: Path) -> None:
    archive = opened(zipped(tmp_path / "w", {"a/data/A": b"1", "a/data/a": b"2", "a/data/b": b"3"}))
    for name in ("a/data/A", "a/data/a"):
        with pytest.raises(CheckpointError, match=f"two entries called '{name}' in different cases"):
            archive.storage(name)
    assert archive.read("a/data/b", limit=1) == b"3"


def test_the_root_is_the_one_folder_that_holds_a_name(tmp_path: Path) -> None:
    archive = opened(zipped(tmp_path / "w", {"a/x": b"", "a/e/z": b""}))
    assert archive.root("x") == archive.root("e/z") == "a/"
    assert archive.root("z") is None
    archive = opened(zipped(tmp_path / "v", {"b/y": b"", "c/y": b""}))
    with pytest.raises(CheckpointError, match="has 2 entries called 'y'"):
        archive.root("y")


@pytest.mark.parametrize("name", ["x", "b/y", "ab/x/y", "A/y"])
def test_an_entry_outside_of_the_root_is_refused(name: str, tmp_path: Path) -> None:
    archive = opened(zipped(tmp_path / "w", {name: b"", "a/x": b""}))
    with pytest.raises(CheckpointError, match=f"has the entry '{name}' outside of its folder 'a/'"):
        archive.root("x")


def test_a_name_that_is_sought_in_small_letters_is_not_there_in_capitals(tmp_path: Path) -> None:
    """PyTorch looks names up in any case."""
    archive = opened(zipped(tmp_path / "w", {"a/X": b"", "a/byteOrder": b"big", "b/byteorder": b"little"}))
    with pytest.raises(CheckpointError, match="spells the entry 'x' in another case: 'a/X'"):
        archive.root("x")
    for root in ("a/", "A/", "B/"):
        with pytest.raises(CheckpointError, match=f"spells the entry '{root}byteorder' in another case: "):
            archive.check_byte_order(root)
    archive.check_byte_order("b/")
    archive.check_byte_order("c/")


@pytest.mark.parametrize(
    "name",
    [
        *("/x", "../x", "a/../x", "a/..", "..", ".", "./x", "a/.", "a/./x"),
        *("C:x", "c:/x", "Z:x", "z:x", "A:x", "a:x", "a\\x", "\\x"),
        *("a/" + "x" * 1022, "a/" + "x" * 2000),
    ],
)
def test_a_name_that_leads_out_of_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="an entry whose name leads out of its folder"):
        opened(zipped(tmp_path / "w", {"a/good": b"", name: b""}))


@pytest.mark.parametrize("name", ["a/..x", "a/x..", "a/...", "x", "ab:x", "a/C:x", "1:x", "a/" + "x" * 1021])
def test_every_other_name_is_a_name(name: str, tmp_path: Path) -> None:
    assert list(opened(zipped(tmp_path / "w", {name: b""})).entries) == [name]


def test_a_name_with_a_zero_or_without_letters_is_refused(tmp_path: Path) -> None:
    zipped(tmp_path / "w", {"a/x": b""})
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes().replace(b"a/x", b"a\0x"))
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        opened(tmp_path / "w")
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        opened(zipped(tmp_path / "w", {"": b""}))


def test_an_encrypted_entry_is_refused_and_other_flags_are_not(tmp_path: Path) -> None:
    for flags in (2, 4, 8, 0x800, 0x80E):
        assert list(opened(changed(zipped(tmp_path / "w"), FLAGS, struct.pack("<H", flags))).entries) == list(CONTENTS)
    for flags in (1, 3, 0x801):
        with pytest.raises(CheckpointError, match=r"an encrypted entry, 'a/data.pkl'"):
            opened(changed(zipped(tmp_path / "w"), FLAGS, struct.pack("<H", flags)))


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    zipped(tmp_path / "w", {"a/x": b"1", "a/y": b"2"})
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes().replace(b"a/y", b"a/x"))
    with pytest.raises(CheckpointError, match="two entries called 'a/x'"):
        opened(tmp_path / "w")


@pytest.mark.parametrize("change", [lambda whole: b"x" + whole, lambda whole: whole[1:], lambda whole: whole + whole])
def test_an_archive_begins_where_its_file_does(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = zipped(tmp_path / "w")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"does not begin with its archive's first entry|damaged"):
        opened(path)


def test_entries_follow_each_other_to_the_directory_and_none_reaches_into_the_next(tmp_path: Path) -> None:
    for entry, size in ((0, 8), (3, 6)):  # one byte more than they have: the next entry, or the directory
        path = changed(zipped(tmp_path / "w"), COMPRESSED_SIZE, struct.pack("<II", size, size), entry=entry)
        with pytest.raises(CheckpointError, match="entries that overlap"):
            opened(path)


def test_an_entry_that_lies_elsewhere_than_its_directory_says_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "w")
    second = path.read_bytes().index(LOCAL, 1)
    for begin in (second - 1, second + 1):
        with pytest.raises(CheckpointError, match=r"an entry is not where its directory says|ends before"):
            opened(changed(path, OFFSET, struct.pack("<I", begin), entry=1))
    whole = zipped(path).read_bytes()
    for old, new in ((b"a/data/0", b"a/data/1"), (b"a/data/0", b"a/data/+"), (LOCAL, b"PK\3\5"), (LOCAL, b"PK\3\3")):
        path.write_bytes(whole.replace(old, new, 1))  # in its own header, not in the directory
        with pytest.raises(CheckpointError, match="an entry is not where its directory says"):
            opened(path)


def test_a_file_that_is_cut_or_changed_anywhere_is_read_or_refused(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "w", {"a/x": b"1", "a/y": b"2"}).read_bytes()
    for end in range(len(whole)):
        (tmp_path / "w").write_bytes(whole[:end])
        with pytest.raises(CheckpointError):
            opened(tmp_path / "w")
    for place in range(len(whole)):
        for bits in (0x01, 0x80):
            (tmp_path / "w").write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
            try:
                archive = opened(tmp_path / "w")
                assert all(storage is None or storage.is_in_file for storage in archive.entries.values())
            except CheckpointError:
                pass


def test_a_directory_that_is_too_long_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = zipped(tmp_path / "w", {f"a/{number}": b"" for number in range(2000)}).read_bytes()
    end = struct.calcsize("<4s4H2IH")
    length = len(whole) - end - whole.index(DIRECTORY)
    monkeypatch.setattr(reading, "MAX_HEADER", length)
    assert len(opened(tmp_path / "w").entries) == 2000
    monkeypatch.setattr(reading, "MAX_HEADER", length - 1)
    with pytest.raises(CheckpointError, match=f"has a directory of over {length - 1} bytes"):
        opened(tmp_path / "w")


def test_an_archive_has_a_thousand_entries_beside_its_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_TENSORS", 5)
    assert len(opened(zipped(tmp_path / "w", {str(number): b"" for number in range(1005)})).entries) == 1005
    with pytest.raises(CheckpointError, match="has 1006 entries; at most 5 tensors are read"):
        opened(zipped(tmp_path / "w", {str(number): b"" for number in range(1006)}))


def test_the_entries_take_no_more_than_what_is_charged_and_the_margin_of_the_promise(tmp_path: Path) -> None:
    """Twice the file and 256 MB are promised; a budget refuses what is charged beyond the file and 192 MB."""
    source = Source(zipped(tmp_path / "w", {f"a/data/{number:05}": b"" for number in range(5000)}))
    before = source.budget.memory
    tracemalloc.start()
    try:
        archive = open_archive(source)
        took, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(archive.entries) == 5000
    assert took <= (before - source.budget.memory) * ALLOWED / MAX_MEMORY


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([(-1, io.SEEK_SET, 0), (0, io.SEEK_SET, 0)])
@given(
    st.lists(
        st.tuples(st.integers(-12, 30), st.sampled_from([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END]), st.integers(-1, 30)),
        max_size=6,
    )
)
def test_zipfile_reads_a_source_as_it_reads_a_file(tmp_path: Path, moves: list[tuple[int, int, int]]) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"0123456789")
    window = reading._Window(Source(path))
    assert window.seekable()
    with path.open("rb") as file:
        for offset, whence, size in moves:
            places: list[object] = []
            for each in (file, window):
                try:
                    places.append(each.seek(offset, whence))
                except (OSError, ValueError):
                    places.append("refused")
            assert places[0] == places[1]
            assert window.read(size) == file.read(size)
            assert window.tell() == file.tell()
