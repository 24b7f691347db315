"""A folder is written whole or not at all, and never over one that is not ours."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conv2attn.convert.errors import OutputError, OutputExistsError
from conv2attn.convert.files.writing import atomic, temporary
from conv2attn.convert.files.write import check_file, check_target, write_file, write_folder

OLD = {"config.json": '{"format": "conv2attn", "run": 1}', "model.safetensors": "old"}
NEW = {"config.json": '{"format": "conv2attn", "run": 2}', "report.json": "new"}
NEXT = {"config.json": '{"format": "conv2attn", "run": 3}'}


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def write_new(folder: Path) -> None:
    put(folder, NEW)


def must_not_run(folder: Path) -> None:
    raise AssertionError(f"{folder} should have been refused")


def refusal(target: Path, *, force: bool) -> str:
    """The one sentence with which both functions refuse the target."""
    with pytest.raises(OutputError) as checking:
        check_target(target, force=force)
    with pytest.raises(OutputError) as writing:
        write_folder(target, must_not_run, force=force)
    assert str(checking.value) == str(writing.value)
    assert "\n" not in str(writing.value)
    return str(writing.value)


@pytest.fixture(params=["exchange", "two renames"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two renames":
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)


BOTH_WAYS = pytest.mark.usefixtures("_way")


# What is written


def test_a_new_folder_holds_what_was_written_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    check_target(tmp_path / "out")
    write_folder(tmp_path / "out", write_new)
    assert contents(tmp_path) == {f"out/{name}": text for name, text in NEW.items()}


@BOTH_WAYS
@pytest.mark.parametrize("old", [OLD, {}])
def test_force_replaces_a_folder_of_ours_or_an_empty_one(old: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    put(tmp_path / "out", old)
    check_target(tmp_path / "out", force=True)
    write_folder(tmp_path / "out", write_new, force=True)
    assert contents(tmp_path) == {f"out/{name}": text for name, text in NEW.items()}
    assert os.listdir(tmp_path) == ["out"]


def test_the_temporary_folder_is_empty_and_beside_the_target(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(folder: Path) -> None:
        assert os.listdir(folder) == []
        seen.append(folder)

    write_folder(tmp_path / "out", write)
    assert seen[0].parent == tmp_path
    assert seen[0].name.startswith(".out.tmp-")


def test_a_link_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "real", OLD)
    (tmp_path / "link").symlink_to("real")
    write_folder(tmp_path / "link", write_new, force=True)
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == NEW


def test_a_relative_target_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(Path("out"), write_new)
    assert contents(tmp_path / "out") == NEW


def test_everything_is_synced_before_the_rename_and_the_parent_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    put_in_place = atomic._put_in_place

    def noted_put_in_place(new: Path, target: Path) -> None:
        events.append("!")
        put_in_place(new, target)

    for module in (atomic, temporary):
        monkeypatch.setattr(module, "sync", lambda path: events.append(path.name))
    monkeypatch.setattr(atomic, "_put_in_place", noted_put_in_place)
    write_folder(tmp_path / "out", write_new)
    before, after = events[: events.index("!")], events[events.index("!") + 1 :]
    assert sorted(before[:-1]) == ["config.json", "report.json"]
    assert before[-1].startswith(".out.tmp-")
    assert after == [tmp_path.name]


# What is refused


def test_unless_told_nothing_that_exists_is_replaced(tmp_path: Path) -> None:
    target, file = tmp_path / "x", tmp_path / "y"
    put(target, OLD)
    file.write_text("old")
    with pytest.raises(OutputExistsError, match="exists, and force was not given"):
        check_target(target)
    with pytest.raises(OutputExistsError, match="exists, and force was not given"):
        write_folder(target, must_not_run)
    with pytest.raises(OutputExistsError, match="exists, and force was not given"):
        check_file(file)
    with pytest.raises(OutputExistsError, match="exists, and force was not given"):
        write_file(file, must_not_run)
    check_target(target, force=True)
    check_file(file, force=True)
    assert (contents(target), file.read_text()) == (OLD, "old")


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no such call")
def test_two_folders_are_exchanged_in_one_step_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(Path("one"), OLD)
    put(Path("other"), NEW)
    assert atomic._exchange(Path("one"), Path("other")) is True
    assert (contents(Path("one")), contents(Path("other"))) == (NEW, OLD)
    assert atomic._exchange(Path("one"), Path("nothing")) is False
    assert sorted(os.listdir()) == ["one", "other"]
    monkeypatch.setattr(sys, "platform", "other")
    assert atomic._exchange(Path("one"), Path("other")) is False
    monkeypatch.undo()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert atomic._exchange(tmp_path / "one", tmp_path / "other") is False
    assert contents(tmp_path / "one") == NEW


def test_an_existing_folder_is_refused_without_force(tmp_path: Path) -> None:
    put(tmp_path / "out", OLD)
    assert "exists, and force was not given" in refusal(tmp_path / "out", force=False)
    assert contents(tmp_path / "out") == OLD


@pytest.mark.parametrize("force", [False, True])
def test_a_file_is_refused(force: bool, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    assert "is a file; the output is a folder" in refusal(tmp_path / "out", force=force)


@pytest.mark.parametrize("force", [False, True])
def test_a_missing_parent_is_refused(force: bool, tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'no'}" in refusal(tmp_path / "no" / "out", force=force)


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"there is no folder {tmp_path / 'file'}" in refusal(tmp_path / "file" / "out", force=False)


def test_a_parent_that_is_not_writable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write anywhere
    assert f"the folder {tmp_path} is not writable" in refusal(tmp_path / "out", force=False)


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert "cannot be written: Permission denied" in refusal(tmp_path / "out", force=False)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("thesis.tex", "years of work"),
        ("nested/config.json", OLD["config.json"]),
        ("config.json/file", OLD["config.json"]),
        ("config.json", '{"architectures": ["BertModel"]}'),
        ("config.json", '{"format": "pt"}'),
        ("config.json", '["format", "conv2attn"]'),
        ("config.json", '{"format": "conv2attn"'),
        ("config.json", "\udcff"),
        ("config.json", ""),
    ],
)
def test_a_folder_that_is_not_ours_is_never_replaced(name: str, text: str, force: bool, tmp_path: Path) -> None:
    (tmp_path / "out" / name).parent.mkdir(parents=True)
    (tmp_path / "out" / name).write_bytes(os.fsencode(text))
    assert "conv2attn did not write it" in refusal(tmp_path / "out", force=force)
    assert (tmp_path / "out" / name).read_bytes() == os.fsencode(text)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_appears_during_the_writing_stays(force: bool, tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        write_new(folder)
        put(tmp_path / "out", {"thesis.tex": "years of work"})

    with pytest.raises(OutputError):
        write_folder(tmp_path / "out", write, force=force)
    assert contents(tmp_path) == {"out/thesis.tex": "years of work"}


# What fails


@pytest.mark.parametrize("old", [None, OLD])
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), OutputError),
        (RuntimeError("bug"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(1), SystemExit),
    ],
)
def test_whatever_the_writing_raises_the_target_is_as_before(
    old: dict[str, str] | None, raised: BaseException, expected: type[BaseException], tmp_path: Path
) -> None:
    def write(folder: Path) -> None:
        write_new(folder)
        raise raised

    put(tmp_path / "out", old or {})
    with pytest.raises(expected) as caught:
        write_folder(tmp_path / "out", write, force=True)
    if expected is OutputError:
        assert str(caught.value) == f"{tmp_path / 'out'} cannot be written: No space left on device"
        assert caught.value.__cause__ is raised
    assert os.listdir(tmp_path) == (["out"] if old else [])
    assert contents(tmp_path) == {f"out/{name}": text for name, text in (old or {}).items()}


@pytest.mark.parametrize("raised", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_second_rename_that_fails_brings_the_old_folder_back(
    raised: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def fail_onto_target(self: Path, target: Path) -> Path:
        if target.name == "out" and not self.name.endswith(".old"):
            raise raised
        return rename(self, target)

    put(tmp_path / "out", OLD)
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", fail_onto_target)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        write_folder(tmp_path / "out", write_new, force=True)
    assert contents(tmp_path) == {f"out/{name}": text for name, text in OLD.items()}


# What killed runs leave

KILLED_AT_EVERY_STEP = """
import os, signal, sys
from pathlib import Path
from conv2attn.convert.files.writing import atomic, temporary

STEPS = ("open", "os.", "shutil.")

def write(folder):
    (folder / "config.json").write_text(sys.argv[3])
    (folder / "report.json").write_text("new")

def run(target, fatal_step):
    steps = 0
    def count(event, arguments):
        nonlocal steps
        if event.startswith(STEPS):
            steps += 1
            if steps == fatal_step:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    atomic.write_folder(target, write, force=True)
    os._exit(0)

if sys.argv[2] == "two renames":
    atomic._exchange = lambda one, other: False
for target in sorted(Path(sys.argv[1]).glob("*/out")):
    child = os.fork()
    if child == 0:
        run(target, int(target.parent.name))
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    print(target.parent.name, "killed" if killed else "done")
"""


@BOTH_WAYS
def test_a_run_killed_at_any_step_leaves_the_old_folder_or_the_new_one(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    way = request.node.callspec.params["_way"]
    for step in range(1, 60):
        put(tmp_path / f"{step:02}" / "out", OLD)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED_AT_EVERY_STEP, str(tmp_path), way, NEW["config.json"]]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    ends = [line.split()[1] for line in output.splitlines()]
    killed = ends.count("killed")
    assert ends == ["killed"] * killed + ["done"] * (59 - killed)
    assert 10 < killed < 59  # every step was tried
    found = [contents_after_kill(tmp_path / f"{step:02}", way) for step in range(1, 60)]
    assert found == sorted(found, key=[OLD, NEW].index)
    assert OLD in found[:killed]
    assert NEW in found[:killed]


def contents_after_kill(parent: Path, way: str) -> dict[str, str]:
    """Looks at the target, checks that the next run leaves nothing beside it, and says what was there."""
    if way == "two renames":
        check_target(parent / "out", force=True)
    found = contents(parent / "out")
    write_folder(parent / "out", lambda folder: put(folder, NEXT), force=True)
    assert contents(parent / "out") == NEXT
    assert os.listdir(parent) == ["out"]
    return found


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.mark.parametrize(
    "name",
    [
        lambda: f".out.tmp-{os.getppid()}-0123abcd-{platform.node()}",
        lambda: f".out.tmp-{os.getpid()}-0123abcd-{platform.node()}",
        lambda: f".out.tmp-{dead_pid()}-0123abcd-{platform.node()}-other",
        lambda: f".other.tmp-{dead_pid()}-0123abcd-{platform.node()}",
        lambda: f".out.tmp-{dead_pid()}",
        lambda: ".out.tmp-mine",
    ],
)
def test_what_may_be_in_use_or_is_not_ours_is_not_swept(name: Callable[[], str], tmp_path: Path) -> None:
    beside = tmp_path / name()
    put(beside, NEW)
    write_folder(tmp_path / "out", write_new)
    assert contents(beside) == NEW


def test_what_a_dead_run_left_is_swept_before_the_target_is_judged(tmp_path: Path) -> None:
    put(tmp_path / f".out.tmp-{dead_pid()}-0123abcd-{platform.node()}", NEW)
    put(tmp_path / "out", OLD)
    assert "exists" in refusal(tmp_path / "out", force=False)
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_left_aside_by_a_killed_run_goes_back(tmp_path: Path) -> None:
    put(tmp_path / f".out.tmp-{dead_pid()}-0123abcd-{platform.node()}.old", OLD)
    assert "exists" in refusal(tmp_path / "out", force=False)
    assert contents(tmp_path) == {f"out/{name}": text for name, text in OLD.items()}


def test_a_run_s_folder_is_called_as_what_killed_runs_leave(tmp_path: Path) -> None:
    called: list[str] = []
    write_folder(tmp_path / "out", lambda folder: called.append(folder.name))
    assert re.fullmatch(rf"\.out\.tmp-{os.getpid()}-[0-9a-f]{{8}}-{re.escape(platform.node())}", called[0])


def test_all_that_dead_runs_left_is_swept_whatever_lies_between(tmp_path: Path) -> None:
    """One that was renamed aside goes back once; where there is a target, or it was not aside, it goes away."""
    pid = dead_pid()
    for number in range(16):
        put(tmp_path / f".out.tmp-{pid}-0123abc{number:x}-{platform.node()}", NEW)
        put(tmp_path / f"other{number}", NEW)
    temporary.clear_remains(tmp_path / "out", OLD | NEW)
    assert sorted(os.listdir(tmp_path)) == sorted(f"other{number}" for number in range(16))
    put(tmp_path / f".out.tmp-{pid}-0123abcd-{platform.node()}.old", OLD)
    put(tmp_path / "out", NEW)
    temporary.clear_remains(tmp_path / "out", OLD | NEW)
    assert contents(tmp_path / "out") == NEW
    assert sorted(os.listdir(tmp_path)) == sorted(["out", *(f"other{number}" for number in range(16))])


@pytest.mark.parametrize("who", ["another user", "another system"])
def test_what_a_run_left_that_cannot_be_asked_stays(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f".out.tmp-{dead_pid()}-0123abcd-{platform.node()}"
    put(left, NEW)

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        if who == "another user":
            patched.setattr(os, "kill", refuse)
        else:
            patched.setattr(sys, "platform", "win32")
        temporary.clear_remains(tmp_path / "out", NEW)
    assert contents(left) == NEW
    temporary.clear_remains(tmp_path / "out", NEW)
    assert os.listdir(tmp_path) == []
