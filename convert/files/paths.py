"""Paths that files name: they lead nowhere but into their own folder."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from ..errors import CheckpointError


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


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; 0 for what is not there."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
