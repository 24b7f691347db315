"""A text replaces an earlier one of ours, in room that was taken before, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conv2attn.convert.errors import OutputError
from conv2attn.convert.files.writing import marked
from conv2attn.convert.files.write import check_marked, marked_file

MARKS = ["made by one", "made by another"]


def write(target: Path, text: str) -> None:
    with marked_file(target, marks=MARKS) as put:
        put(text)


def test_a_text_is_written_and_replaces_one_of_ours(tmp_path: Path) -> None:
    target = tmp_path / "text"
    for text in ("made by one", "longer, made by another", "", "made by one"):  # an empty file is nobody's
        write(target, text)
        assert target.read_text() == text
        assert os.listdir(tmp_path) == ["text"]


def test_without_a_text_the_old_one_stays_and_without_a_target_nothing_is_written(tmp_path: Path) -> None:
    target = tmp_path / "text"
    target.write_text("made by one")
    with marked_file(target, marks=MARKS, room=10):
        assert target.read_text() == "made by one"
    assert target.read_text() == "made by one"
    with marked_file(None, marks=MARKS) as put:
        put("made by one")
    assert os.listdir(tmp_path) == ["text"]


def test_a_text_without_a_mark_in_its_first_2000_bytes_stays(tmp_path: Path) -> None:
    target, mark = tmp_path / "text", MARKS[1]
    for text in (mark.rjust(2000), mark + "x" * 3000):
        target.write_text(text)
        check_marked(target, MARKS)
    for text in (mark.rjust(2001), "x", "made by three"):
        target.write_text(text)
        with pytest.raises(OutputError, match="text exists, and conv2attn did not write it; it stays"):
            check_marked(target, MARKS)
        with pytest.raises(OutputError, match="text exists, and conv2attn did not write it; it stays"):
            write(target, mark)
        assert target.read_text() == text


def test_a_text_that_comes_during_the_work_stays(tmp_path: Path) -> None:
    target = tmp_path / "text"
    with marked_file(target, marks=MARKS) as put:
        target.write_text("other")
        with pytest.raises(OutputError, match="did not write it"):
            put("made by one")
    assert target.read_text() == "other"


def test_what_may_not_be_written_or_is_no_file_or_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "text"
    check_marked(target, MARKS)
    write(target, "made by one")
    with pytest.raises(OutputError, match=f"the input {target} would be lost"):
        check_marked(target, MARKS, [target])
    with pytest.raises(OutputError, match="is a folder; the output is a file"):
        check_marked(tmp_path, MARKS)
    monkeypatch.setattr(os, "access", lambda path, mode: path != target)
    with pytest.raises(OutputError, match="text cannot be written: it is not writable"):
        check_marked(target, MARKS)


@pytest.mark.parametrize("room", [0, 1, 5000])
def test_the_room_is_taken_at_once_and_what_is_left_of_it_given_back(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, taken = tmp_path / "text", list[int]()
    plain = marked._write

    def watched(path: Path, content: bytes) -> None:
        taken.append(len(content))
        plain(path, content)

    monkeypatch.setattr(marked, "_write", watched)
    with marked_file(target, marks=MARKS, room=room) if room else marked_file(target, marks=MARKS) as put:
        assert taken == [room]
        put("made by one")
    assert target.read_bytes() == b"made by one"
