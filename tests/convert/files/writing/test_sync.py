"""Files and folders are forced to disk, what lies in a folder before the folder."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from conv2attn.convert.files.write import sync, sync_tree


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that the system was told to force to disk."""
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return found


def test_a_tree_is_forced_to_disk_from_within(synced: list[str], tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b/x", "a/y", "z"):
        (tmp_path / name).touch()
    sync_tree(tmp_path)
    inside = [str(tmp_path / name) for name in ("a/b/x", "a/b", "a/y", "a", "z")]
    assert synced == [*inside, str(tmp_path)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.EROFS])
def test_only_a_file_system_that_cannot_sync_is_passed_over_and_nothing_stays_open(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EINVAL:
        sync(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            sync(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_the_system_cannot_sync_nothing_is_done(
    synced: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(tmp_path)
    assert synced == [str(tmp_path)]
    monkeypatch.setattr(sys, "platform", "win32")
    sync(tmp_path)
    assert synced == [str(tmp_path)]
