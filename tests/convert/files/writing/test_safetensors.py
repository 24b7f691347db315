"""Weights are written with the permissions of any new file, and what fails is told as the file system tells it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open

from conv2attn.convert.errors import OutputError
from conv2attn.convert.files.writing import safetensors
from conv2attn.convert.files.tensors import write_safetensors


def test_tensors_and_texts_are_written(tmp_path: Path) -> None:
    write_safetensors({"a": torch.arange(3)}, tmp_path / "x", {"b": "c"})
    with safe_open(tmp_path / "x", "pt") as file:
        assert file.metadata() == {"format": "pt", "b": "c"}
        assert file.get_tensor("a").tolist() == [0, 1, 2]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_mask(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_safetensors({}, tmp_path / "x", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_an_error_of_the_file_system_is_one_and_any_other_says_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(message: str) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise SafetensorError(message)

        monkeypatch.setattr(safetensors, "save_file", fail)

    failing("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        write_safetensors({}, tmp_path / "x", {})
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOSPC, os.strerror(errno.ENOSPC))
    failing("the header is too large")
    with pytest.raises(OutputError, match=r"^x cannot be written: the header is too large$"):
        write_safetensors({}, tmp_path / "x", {})
