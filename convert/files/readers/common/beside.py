"""Files that another file names: opened only if they lie in its folder, and once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ....errors import CheckpointError
from .stored import Source

_OPENING = 200  # steps, and bytes, that one more name takes

OpenBeside = Callable[[str], Source]
"""Opens a file in a folder by the name that another file gives."""


class Beside:
    """The files in the folder of another file that were opened by name, each once, under however many names.

    Args:
        source: The file that names the others.
    """

    def __init__(self, source: Source) -> None:
        self._folder, self._budget = source.path.parent, source.budget
        self._names: dict[str, Source] = {}
        self._found: dict[tuple[int, int], Source] = {}

    @property
    def opened(self) -> tuple[Source, ...]:
        """The files, in the order in which they were named first."""
        return tuple(self._found.values())

    def open(self, name: str) -> Source:
        """Opens a file in the folder.

        Raises:
            CheckpointError: The name, or the link of that name, leads out of the folder, or there is no such file.
        """
        if name not in self._names:
            self._budget.spend(memory=_OPENING + len(name), steps=_OPENING)
            path = path_in(self._folder, name)
            status = path.stat()
            identity = (status.st_dev, status.st_ino)
            if identity not in self._found:
                self._found[identity] = Source(path, self._budget)
            self._names[name] = self._found[identity]
        return self._names[name]


def path_in(folder: Path, name: str) -> Path:
    """The path of a file in a folder.

    A link may lead out of the folder in one case: a Hugging Face cache keeps ``snapshots/REVISION/NAME`` as links
    to ``blobs``.

    Raises:
        CheckpointError: The name, or the link of that name, leads out of the folder, or there is no such file.
    """
    parts = PurePosixPath(name).parts
    if not name or "\\" in name or "\0" in name or name.startswith("/") or ".." in parts or ":" in name:
        raise CheckpointError(f"{folder} names {name[:100]!r}, which is no file in the folder")
    path, home = folder / name, folder.resolve()
    allowed = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise CheckpointError(f"{path} cannot be followed") from error
    if not any(target.is_relative_to(place) for place in allowed):
        raise CheckpointError(f"{path} is a link that leaves its folder")
    if not target.is_file():
        raise CheckpointError(f"there is no file {path}")
    return path
