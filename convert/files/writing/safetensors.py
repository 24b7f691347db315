"""Writes safetensors with the permissions of any new file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ...errors import (
    OutputError,
)


def write_safetensors(tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Writes tensors and texts as safetensors, with the permissions of any new file.

    Raises:
        OSError: The file system failed.
        OutputError: Something else did.
    """
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)  # the library's own file is for its owner alone
    try:
        save_file(tensors, path, metadata={"format": "pt", **metadata})
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is not None:  # as the file system says it, so that the target is named
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise OutputError(f"{path.name} cannot be written: {error}") from error
    path.chmod(permissions)
