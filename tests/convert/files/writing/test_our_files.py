"""Only plain files of our names, beside a config.json of ours, are ours; what else there is is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conv2attn.convert.errors import OutputError
from conv2attn.convert.files.writing import ownership
from conv2attn.convert.files.write import OURS, check_only_ours, discard, is_ours

OF_OURS = '{"format": "conv2attn"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all five files of ours."""
    made = tmp_path / "out"
    made.mkdir()
    for name in OURS:
        (made / name).write_text(OF_OURS if name == "config.json" else "")
    return made


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"format": "other"}', '{"format": 1}'])
def test_another_program_s_config_is_not_ours(text: str, folder: Path) -> None:
    assert is_ours(folder / "config.json")
    (folder / "config.json").write_text(text)
    assert not is_ours(folder / "config.json")
    assert not is_ours(folder / "nothing")
    for called in (None, Path("target")):
        with pytest.raises(OutputError, match=f"^{called or folder} holds files but no config.json of ours: conv2attn"):
            check_only_ours(folder, target=called)


@pytest.mark.parametrize("count", range(1, 8))
def test_five_foreign_entries_are_named_and_the_others_counted(count: int, folder: Path) -> None:
    check_only_ours(folder)
    names = [f"a{number}" for number in range(count)]
    for name in names:
        (folder / name).touch()
    more = {6: " and 1 more", 7: " and 2 more"}.get(count, "")
    told = f"{folder} also holds {', '.join(map(repr, names[:5]))}{more}, which conv2attn did not write; it stays"
    with pytest.raises(OutputError) as refused:
        check_only_ours(folder)
    assert str(refused.value) == told
    with pytest.raises(OutputError, match=r"^target also holds 'a0'"):
        check_only_ours(folder, target=Path("target"))


def test_an_empty_folder_holds_nothing_foreign_and_a_link_or_a_folder_of_our_name_does(tmp_path: Path) -> None:
    check_only_ours(tmp_path)
    (tmp_path / "config.json").write_text(OF_OURS)
    check_only_ours(tmp_path)
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OutputError, match=r"also holds 'report\.json', which"):
        check_only_ours(tmp_path)
    (tmp_path / "report.json").rmdir()
    (tmp_path / "report.html").symlink_to("config.json")
    with pytest.raises(OutputError, match=r"also holds 'report\.html', which"):
        check_only_ours(tmp_path)


def test_a_folder_of_ours_is_removed_with_what_was_not_finished_and_nothing_else(folder: Path) -> None:
    (folder / ".tmpabc").touch()
    discard(folder)
    assert not folder.exists()
    discard(folder)
    folder.mkdir()
    for name in (*OURS, "notes", "config.json.tmp"):
        (folder / name).touch()
    (folder / ".tmp").mkdir()
    discard(folder)
    assert sorted(os.listdir(folder)) == [".tmp", "config.json.tmp", "notes"]
    discard(folder, ["notes"])
    assert sorted(os.listdir(folder)) == [".tmp", "config.json.tmp"]


def test_what_is_gone_in_between_is_no_file(tmp_path: Path) -> None:
    assert not ownership._is_plain_file(tmp_path / "nothing")
    assert not ownership._is_plain_file(tmp_path)
