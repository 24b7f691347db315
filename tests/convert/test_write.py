"""A writer leaves the old or the new, removes only what is ours, and never what is being read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import Timeout

from conv2attn.convert.errors import OutputError, OutputExistsError
from conv2attn.convert.write import (
    CONFIG,
    FORMAT,
    WEIGHTS,
    check_file,
    check_outside,
    check_target,
    marked_file,
    write_file,
    write_folder,
)


def fill(text: str) -> Callable[[Path], None]:
    """Writes a folder of ours."""

    def write(folder: Path) -> None:
        (folder / CONFIG).write_text(json.dumps({"format": FORMAT, "text": text}))
        (folder / WEIGHTS).write_text(text)

    return write


def held(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    write_folder(tmp_path / "out", fill("old"))
    return tmp_path / "out"


def test_a_folder_is_written_whole_and_nothing_lies_beside_it(ours: Path) -> None:
    assert held(ours)[WEIGHTS] == "old"
    write_folder(ours, fill("new"), force=True)
    assert held(ours)[WEIGHTS] == "new"
    assert list(ours.parent.iterdir()) == [ours]
    os.umask(mask := os.umask(0))
    assert ours.stat().st_mode & 0o777 == 0o777 & ~mask


def test_what_exists_is_replaced_only_if_told(ours: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "f", lambda path: path.write_text("old"))
    with pytest.raises(OutputExistsError, match=r"exists already; force=True replaces it$"):
        write_folder(ours, fill("new"))
    with pytest.raises(OutputExistsError, match=r"exists already; force=True replaces it$"):
        write_file(tmp_path / "f", lambda path: path.write_text("new"))
    assert (tmp_path / "f").read_text() == held(ours)[WEIGHTS] == "old"
    write_file(tmp_path / "f", lambda path: path.write_text("new"), force=True)
    assert (tmp_path / "f").read_text() == "new"


@pytest.mark.parametrize(
    "put",
    [
        lambda folder: (folder / "mine.txt").touch(),
        lambda folder: (folder / "report.html").mkdir(),
    ],
)
def test_a_folder_with_something_that_is_not_ours_stays(put: Callable[[Path], None], ours: Path) -> None:
    put(ours)
    with pytest.raises(OutputError, match=r"also holds .*, which conv2attn did not write, so it is not replaced"):
        write_folder(ours, fill("new"), force=True)
    assert "old" in (ours / CONFIG).read_text()


@pytest.mark.parametrize("config", ["not JSON", '{"format": "other"}'])
def test_another_program_s_folder_stays(config: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / CONFIG).write_text(config)
    with pytest.raises(OutputError, match=r"out holds files that conv2attn did not write, so .*; choose another name$"):
        write_folder(tmp_path / "out", fill("new"), force=True)


def test_an_empty_folder_and_a_link_to_a_folder_of_ours_are_taken(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", fill("new"), force=True)
    (tmp_path / "link").symlink_to(ours)
    write_folder(tmp_path / "link", fill("new"), force=True)
    assert (tmp_path / "link").is_symlink()
    assert held(ours)[WEIGHTS] == held(tmp_path / "empty")[WEIGHTS] == "new"


def test_what_is_read_is_never_written_over(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "hard").hardlink_to(ours / WEIGHTS)
    (tmp_path / "soft").symlink_to(ours / WEIGHTS)
    for source in (ours / WEIGHTS, ours, tmp_path / "soft"):
        with pytest.raises(OutputError, match="would be lost"):
            write_folder(ours, fill("new"), force=True, sources=[source])
    for target in ("hard", "soft"):
        with pytest.raises(OutputError, match="would be lost"):
            write_file(tmp_path / target, lambda path: path.write_text("x"), force=True, sources=[ours / WEIGHTS])
    assert held(ours)[WEIGHTS] == "old"
    with pytest.raises(OutputError, match="would be read as part of it"):
        check_outside(ours / "x", ours)


def test_a_place_that_takes_no_output_is_told_before_anything_is_done(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    for check, target, told in (
        (check_target, tmp_path / "gone" / "out", "there is no folder"),
        (check_target, tmp_path / "f", "is a file; the output is a folder"),
        (check_file, ours, "is a folder; the output is a file"),
        (check_file, Path("/dev/null"), "is not a plain file"),
    ):
        with pytest.raises(OutputError, match=told):
            check(target, force=True)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_writer_that_fails_leaves_the_old(error: BaseException, ours: Path) -> None:
    def write(folder: Path) -> None:
        fill("new")(folder)
        raise error

    wanted = OutputError if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted):
        write_folder(ours, write, force=True)
    with pytest.raises(wanted):
        write_file(ours.parent / "f", lambda path: write(path.parent))
    assert held(ours)[WEIGHTS] == "old"
    assert list(ours.parent.iterdir()) == [ours]


DYING = """
import os, sys
from pathlib import Path
from conv2attn.convert.write import write_folder
from tests.convert.test_write import fill
out, place = Path(sys.argv[1]), sys.argv[2]
def write(folder):
    fill("new")(folder)
    if place == "while it writes":
        os._exit(9)
def die(source, target):
    os.rename(source, target)
    os._exit(9)
os.replace = die
write_folder(out, write, force=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["while it writes", "between the two renames"])
def test_a_run_that_dies_is_made_good_by_the_next(place: str, ours: Path) -> None:
    assert subprocess.run([sys.executable, "-c", DYING, str(ours), place]).returncode == 9
    assert ours.exists() == (place == "while it writes")
    with pytest.raises(OutputExistsError):
        write_folder(ours, fill("newer"))
    assert held(ours)[WEIGHTS] == "old"
    write_folder(ours, fill("newer"), force=True)
    assert list(ours.parent.iterdir()) == [ours]


def test_of_many_writers_each_writes_all_or_is_told_of_the_other_and_no_lock_stays(ours: Path) -> None:
    def write(name: str) -> list[str]:
        told = []
        for count in range(8):
            try:
                write_folder(ours, fill(f"{name} {count}"), force=True)
            except OutputError as error:
                told.append(str(error))
        return told

    with ThreadPoolExecutor(4) as pool:
        told = [text for texts in pool.map(write, "abcd") for text in texts]
    assert any(text.endswith("another run is writing it") for text in told)
    assert json.loads(held(ours)[CONFIG])["text"] == held(ours)[WEIGHTS]
    assert list(ours.parent.iterdir()) == [ours]


def test_a_text_that_says_who_wrote_it_is_replaced_and_no_other(tmp_path: Path) -> None:
    with marked_file(None, marks=["mine"]) as write:
        write("nothing")
    for _ in range(2):
        with marked_file(tmp_path / "t", marks=["mine"]) as write:
            write("mine: text")
    assert (tmp_path / "t").read_text() == "mine: text"
    (tmp_path / "t").write_text("theirs")
    with (
        pytest.raises(OutputError, match=r"conv2attn did not write .*t, so it is not replaced; choose another name$"),
        marked_file(tmp_path / "t", marks=["mine"]),
    ):
        pass


def test_a_folder_that_takes_no_file_is_not_said_to_be_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise Timeout("lock")  # as filelock does in /proc, after waiting

    monkeypatch.setattr("filelock.FileLock.acquire", never)
    with pytest.raises(OutputError, match=r"no file can be made in the folder "):
        write_file(tmp_path / "new", lambda path: path.write_text("text"))
