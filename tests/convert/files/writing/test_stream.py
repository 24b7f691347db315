"""What torch writes is written whole, or the file system's own error is raised."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.files.tensors import write_stream

Save = Callable[[IO[bytes]], Any]
STATE = {"weight": torch.rand(3, 100, 100), "bias": torch.rand(3)}


def program() -> torch.export.ExportedProgram:
    return torch.export.export(nn.Linear(3, 2), (torch.zeros(1, 3),))


def test_a_state_dict_is_read_again_as_it_was_written(tmp_path: Path) -> None:
    write_stream(partial(torch.save, STATE), tmp_path / "state.pth")
    read: dict[str, Tensor] = torch.load(tmp_path / "state.pth", weights_only=True)
    assert all(torch.equal(read[name], STATE[name]) for name in STATE)


def test_a_program_is_read_again_as_it_was_written(tmp_path: Path) -> None:
    written = program()
    write_stream(partial(torch.export.save, written), tmp_path / "program.pt2")
    x = torch.rand(1, 3)
    assert torch.equal(torch.export.load(tmp_path / "program.pt2").module()(x), written.module()(x))


@pytest.mark.parametrize("save", [partial(torch.save, STATE), partial(torch.export.save, program())])
def test_a_full_disk_is_the_system_s_error(save: Save) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_stream(save, Path("/dev/full"))


def test_what_else_fails_is_raised_as_it_is(tmp_path: Path) -> None:
    def fail(stream: IO[bytes]) -> None:
        stream.write(b"half")
        raise TypeError("no such thing")

    with pytest.raises(TypeError, match="no such thing"):
        write_stream(fail, tmp_path / "file")
