"""Tells what a file is by its first bytes, whatever its name is."""

from __future__ import annotations

import pickle
import re
from enum import Enum

HEAD_BYTES = 512  # enough to tell the kinds apart, and an HTML page or a text from them


class Kind(Enum):
    """The kinds of file that are read."""

    SAFETENSORS = "safetensors"
    ZIP = "a zip archive"
    PICKLE = "a pickle"
    INDEX = "JSON"
    ONNX = "ONNX"


def sniff(head: bytes) -> Kind | None:
    """The kind of file that begins like this, or None."""
    if head[4:9] == b"\0\0\0\0{":  # a header's length below 4 GiB, and JSON; the length can look like a pickle
        return Kind.SAFETENSORS
    if head.startswith(b"PK\3\4"):
        return Kind.ZIP
    if len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL:
        return Kind.PICKLE
    if head.lstrip().startswith(b"{"):
        return Kind.INDEX
    if re.match(rb"\x08[\x01-\x20][\x12\x1a\x22\x28\x32\x3a\x42]", head):  # ir_version, then another field
        return Kind.ONNX
    return None


def describe(head: bytes) -> str:
    """Says what a file that is no checkpoint seems to be."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head:
        return "empty"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer (git lfs pull fetches the file it stands for)"
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if not re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", head):
        return "a text file"
    return "a file of an unknown kind"
