"""A file that another names is opened once, and counted once, under however many names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.beside import Beside
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


@pytest.mark.parametrize(
    "name", ["", "/etc/hosts", "../index", "sub/../index", "a\\b", "a\0b", "C:part", "sub", "none"]
)
def test_a_name_that_leads_away_or_to_no_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"{}")
    (tmp_path / "sub").mkdir()
    with pytest.raises(CheckpointError):
        Beside(Source(tmp_path / "index", Budget())).open(name)
