"""A folder's lock is held by one, given back, and never waited for unless that is said."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
from pathlib import Path

import pytest

from conv2attn.convert.files.writing.locks import is_locked, lock, locked, unlock


def test_one_has_the_lock_until_it_is_given_back(tmp_path: Path) -> None:
    held = lock(tmp_path)
    assert held is not None
    assert held >= 0
    assert is_locked(tmp_path)
    assert lock(tmp_path) is None
    unlock(held)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)
    assert not is_locked(tmp_path)
    again = lock(tmp_path)
    assert again is not None
    unlock(again)


def test_looking_and_failing_leave_nothing_open(tmp_path: Path) -> None:
    held = lock(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    assert is_locked(tmp_path)
    assert lock(tmp_path) is None
    unlock(None)
    unlock(-1)
    assert len(os.listdir("/proc/self/fd")) == before
    unlock(held)
    assert not is_locked(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_what_is_no_folder_has_no_lock_and_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "pipe", "nothing"):
        assert lock(tmp_path / name) is None
        assert lock(tmp_path / name, wait=True) is None
        assert not is_locked(tmp_path / name)


def test_one_that_waits_gets_the_lock_when_it_is_given_back(tmp_path: Path) -> None:
    held, order = lock(tmp_path), list[str]()

    def other() -> None:
        with locked(tmp_path):
            order.append("has it")
            assert is_locked(tmp_path)

    waiting = threading.Thread(target=other)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    order.append("gives it back")
    unlock(held)
    waiting.join(5)
    assert order == ["gives it back", "has it"]
    assert not is_locked(tmp_path)


def test_a_lock_of_a_moment_is_given_back_whatever_happens(tmp_path: Path) -> None:
    def fail() -> None:
        assert is_locked(tmp_path)
        raise ValueError("something")

    with pytest.raises(ValueError, match="something"), locked(tmp_path):
        fail()
    assert not is_locked(tmp_path)


def test_without_locks_of_the_system_or_of_the_file_system_everyone_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", fail)
    held = lock(tmp_path), lock(tmp_path)
    assert len(set(held) - {None}) == 2
    assert not is_locked(tmp_path)
    for one in held:
        unlock(one)
    monkeypatch.setattr(sys, "platform", "win32")
    assert lock(tmp_path) == lock(tmp_path, wait=True) == -1
    assert not is_locked(tmp_path)
