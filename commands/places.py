"""Places that commands read from and write to, refused before torch is imported where they cannot be meant."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..convert.errors import OptionError, OutputExistsError
from ..convert.write import CONFIG

Check = Callable[..., None]


class MissingPathError(Exception):
    """A path to read at which there is neither a file nor a folder."""


def check_there(path: Path) -> None:
    """Refuses a path that is not there, in a folder that is; other paths may be names, whose form readers know.

    Raises:
        MissingPathError: It is not there, or a link that leads nowhere, or a device, a pipe or the like.
    """
    if os.path.isfile(path) or os.path.isdir(path):
        return
    if os.path.exists(path):
        raise MissingPathError(f"{path} is neither a plain file nor a folder")
    if os.path.islink(path):
        raise MissingPathError(f"{path} is a link to {os.readlink(path)}, which leads to no file")
    if ":" not in path.name and path.parent.is_dir():
        kind = "file" if path.suffix else "file or folder"
        close: list[str] = []
        with suppress(OSError):
            close = difflib.get_close_matches(path.name, os.listdir(path.parent), n=4, cutoff=0.7)
        raise MissingPathError(f"there is no {kind} {path}" + (f"; close names: {', '.join(close)}" if close else ""))


def check_places(
    check: Check, out: Path, source: Path, *, force: bool, sources: Sequence[Path] = (), endings: Sequence[str] = ()
) -> None:
    """Refuses a place of the output as ``check_file`` or ``check_target`` does, which ``check`` is.

    Where the output is there already, a source that is no checkpoint is refused first.

    Raises:
        OptionError: The output does not end in one of ``endings``, if there are some.
    """
    if endings and out.suffix not in endings:
        raise OptionError(f"{out} must end in {', '.join(endings)}, which says what kind of file is written")
    try:
        check(out, force=force, sources=[source, *sources])
    except OutputExistsError:
        from ..convert.files.folder import converted_in
        from ..convert.files.readers import kind_of

        if not (converted_in(source) / CONFIG).is_file():
            kind_of(source)
        raise
