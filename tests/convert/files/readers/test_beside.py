"""A file that another names is opened once, and counted once, under however many names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.beside import Beside, path_in
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.common.stored import Source


def test_spellings_and_links_of_one_file_are_one_and_add_its_size_once(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"{}")
    (tmp_path / "part").write_bytes(bytes(1000))
    (tmp_path / "sub").mkdir()
    os.link(tmp_path / "part", tmp_path / "sub" / "hard")
    (tmp_path / "soft").symlink_to("part")
    budget = Budget()
    beside = Beside(Source(tmp_path / "index", budget))
    found = {id(beside.open(name)) for name in ("part", "./part", "sub/hard", "soft", "part")}
    assert len(found) == len(beside.opened) == 1
    assert budget.size == 2 + 1000


def test_files_are_listed_in_the_order_of_their_first_names_and_a_name_is_paid_for_once(tmp_path: Path) -> None:
    for name in ("index", "a", "b"):
        (tmp_path / name).write_bytes(b"{}")
    source = Source(tmp_path / "index")
    beside, budget = Beside(source), source.budget
    memory, steps = budget.memory, budget.steps
    for name in ("b", "a", "b", "./b"):
        assert beside.open(name).path.name == name[-1]
    assert [opened.path.name for opened in beside.opened] == ["b", "a"]
    # three names of 1, 1 and 3 letters, and two files of two bytes, which allow as much
    assert (memory + 2 * 2 - budget.memory, steps + 2 * 2 - budget.steps) == (3 * 200 + 5, 3 * 200)


def test_a_link_to_itself_cannot_be_followed(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(CheckpointError, match="cannot be followed"):
        path_in(tmp_path, "a")


@pytest.mark.parametrize(
    "name", ["", "/etc/hosts", "../index", "sub/../index", "a\\b", "a\0b", "C:part", "sub", "none"]
)
def test_a_name_that_leads_away_or_to_no_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"{}")
    (tmp_path / "sub").mkdir()
    said = "there is no file" if name in ("sub", "none") else "which is no file in the folder"
    with pytest.raises(CheckpointError, match=said):
        Beside(Source(tmp_path / "index", Budget())).open(name)


@pytest.mark.parametrize(
    ("folder", "place", "is_read"),
    [
        ("model/snapshots/a", "model/blobs", True),
        ("model/snapshots/a", "model/snapshots/b", False),
        ("model/snapshots/a", "model", False),
        ("model/snapshots/a", "blobs", False),
        ("model/snapshots/a/b", "model/blobs", False),
        ("model/revisions/a", "model/blobs", False),
        ("model/snapshots", "blobs", False),
    ],
)
def test_only_a_snapshot_has_links_that_leave_it_and_only_to_the_blobs_beside_the_snapshots(
    folder: str, place: str, is_read: bool, tmp_path: Path
) -> None:
    for path in (tmp_path / folder, tmp_path / place):
        path.mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "0123").write_bytes(b"{}")
    (tmp_path / folder / "w").symlink_to(tmp_path / place / "0123")
    if is_read:
        assert path_in(tmp_path / folder, "w").read_bytes() == b"{}"
    else:
        with pytest.raises(CheckpointError, match="is a link that leaves its folder"):
            path_in(tmp_path / folder, "w")
