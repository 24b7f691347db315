"""Kinds of data by name. Torch is not needed: the command line asks first."""

from __future__ import annotations

from pathlib import Path

from ...convert.arguments import Size
from ...convert.errors import OptionError

KINDS = "digits, digits:SIDE, drawn, drawn:SIDE, cifar10:PATH or folder:PATH"
"""Without a colon, the path of a folder means the same as folder:PATH, unless it is one of these words."""
_SIDES = 16, 256


def data_kind(text: str) -> tuple[str, str]:
    """The kind of data that a text names, and what stands behind the colon: the path, or the side or "".

    Raises:
        OptionError: It is not one of ``KINDS``.
    """
    kind, colon, path = text.partition(":")
    if text and kind not in ("digits", "drawn", "cifar10", "folder") and Path(text).is_dir():
        return "folder", text
    if kind in ("folder", "cifar10") and path:
        return kind, path
    side = int(path) if path.isascii() and path.isdecimal() and len(path) < 4 else 0
    if kind in ("digits", "drawn") and (not colon or _SIDES[0] <= side <= _SIDES[1]):
        return kind, path
    raise OptionError(
        f"data must be {KINDS}, with a side from {_SIDES[0]} to {_SIDES[1]}; got {text!r:.200}, which is no folder"
    )


def sized(kind: str, size: Size) -> str | None:
    """The data of this kind with images of this size; None if there are none."""
    is_side = size.rows == size.columns and _SIDES[0] <= size.rows <= _SIDES[1]
    return f"{kind}:{size.rows}" if kind in ("digits", "drawn") and is_side else None
