"""What another program puts in the place of a target, at whatever step of a run, is not removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.hostile.steps import told

STEPS = 60  # more than a run has

# At another step of each run, a target, or the folder that it is in, becomes a link to what is not ours.
RUN = """
import json, os, sys
from pathlib import Path
from conv2attn.convert.files.writing import atomic
from tests.hostile.steps import at_step, ending

kind, swapped, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
OURS = '{"format": "conv2attn"}'

def write(folder):
    (folder / "config.json").write_text(OURS)
    (folder / "report.json").write_text("new")

def run(top, fatal):
    target = top / "parent" / ("out" if kind == "folder" else "file")
    def swap():
        place = top / "parent" if swapped == "parent" else target
        os.rename(place, top / "moved")
        os.symlink(top / "precious", place)
    at_step(fatal, swap)
    if kind == "folder":
        atomic.write_folder(target, write, force=True)
    else:
        atomic.write_file(target, lambda path: path.write_text("new"), force=True)

for step in range(1, steps):
    top = Path(str(step)).resolve()
    (top / "parent" / "out").mkdir(parents=True)
    (top / "precious" / "out").mkdir(parents=True)
    for name in ("out/notes.txt", "file", "config.json", "report.json"):
        (top / "precious" / name).write_text("years of work")
    (top / "parent" / "out" / "config.json").write_text(OURS)
    (top / "parent" / "file").write_text("old")
    code = ending(lambda: run(top, step))
    held = {
        str(path.relative_to(top / "precious")): path.read_text()
        for path in sorted((top / "precious").rglob("*")) if path.is_file()
    }
    print(json.dumps([code, (top / "moved").exists(), held]))
"""

WRITE = """
from pathlib import Path
from conv2attn.convert.files.write import write_file

write_file(Path("out"), lambda path: path.write_text("new"))
"""


@pytest.mark.parametrize("swapped", ["target", "parent"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_link_that_comes_during_a_run_leads_to_nothing_that_is_removed(
    kind: str, swapped: str, tmp_path: Path
) -> None:
    runs = [json.loads(line) for line in told(RUN, kind, swapped, STEPS, folder=tmp_path)]
    before = dict.fromkeys(("config.json", "file", "out/notes.txt", "report.json"), "years of work")
    assert len(runs) == STEPS - 1
    assert {came for _, came, _ in runs} == {True, False}  # every step was tried
    assert all(code in (0, 3) for code, _, _ in runs)
    allowed = [before]
    if (kind, swapped) == ("file", "parent"):  # one file is replaced, whoever wrote it, where links lead to it
        allowed.append(before | {"file": "new"})
    assert all(held in allowed for _, _, held in runs)


def test_a_pipe_that_is_called_like_another_run_s_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".out.tmp-1")
    told(WRITE, folder=tmp_path)
    assert (tmp_path / "out").read_text() == "new"
