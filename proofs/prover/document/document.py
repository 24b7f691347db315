"""Writes a rendered document to a file, and never over something that is none."""

from __future__ import annotations

import os
from pathlib import Path

from .wording import GENERATED

_MARKS = (GENERATED, '"command": "prove"')  # one of them stands at the beginning of every document
_BEGINNING = 500  # characters


def check_document(path: Path) -> None:
    """Refuses a file that ``write_document`` would refuse, before the work.

    Raises:
        OutputError: Its folder does not exist, it is a folder, or it holds something that is not such a document.
    """
    if not path.parent.is_dir():
        raise _error(f"{path} cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise _error(f"{path} is a folder; the output is a file")
    try:
        beginning = path.read_text(encoding="utf-8", errors="replace")[:_BEGINNING] if path.exists() else ""
    except OSError as error:
        raise _error(f"{path} cannot be read: {error.strerror or error}") from error
    if beginning and not any(mark in beginning for mark in _MARKS):
        raise _error(f"{path} exists, and conv2attn prove did not write it; it stays")


def write_document(path: Path, text: str) -> None:
    """Writes the document; a run that is killed leaves the old file or the new one.

    Raises:
        OutputError: As ``check_document``, or the file system failed.
    """
    check_document(path)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise _error(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _error(message: str) -> Exception:
    from ....convert.errors import OutputError  # imports torch, which writing a document does not need

    return OutputError(message)
