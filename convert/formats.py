"""The kinds of checkpoint file, and one reader for each.

A file's kind is told by its first bytes, not by its name. Pickles are read with ``weights_only=True`` and
never otherwise, so that reading a file runs no code from it. Another kind is another line of ``_KINDS``.

Raises:
    CheckpointError: By ``read_contents``, for every file that is not an intact checkpoint of data alone.
"""

from __future__ import annotations

import mmap
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import BinaryIO

import safetensors.torch
import torch

from conv2attn.convert.errors import CheckpointError

_HEAD_BYTES = 512  # enough to tell the kinds apart, and an HTML page or a text from them


def read_contents(file: BinaryIO) -> object:
    """Reads what the file holds, from its start: a state dict, or containers with one inside.

    Raises:
        CheckpointError: The file is of none of the kinds, is damaged, or refers to code.
        OSError: The file system failed.
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    read = next((read for is_kind, read in _KINDS if is_kind(head)), None)
    if read is None:
        raise CheckpointError(f"{file.name} is {_describe(head)}, not a .pt, .pth or .safetensors checkpoint")
    try:
        with warnings.catch_warnings(action="ignore"):
            return read(file)
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # a damaged file makes the readers raise anything
        raise CheckpointError(_explain(file, error)) from error


def _is_safetensors(head: bytes) -> bool:
    """Eight bytes of header length, little-endian and below 4 GiB, then a JSON object."""
    return head[4:9] == b"\0\0\0\0{"


def _read_safetensors(file: BinaryIO) -> object:
    return safetensors.torch.load(file.read())


def _is_zip(head: bytes) -> bool:
    return head.startswith(b"PK\3\4")


def _read_zip(file: BinaryIO) -> object:
    with zipfile.ZipFile(file) as archive:
        members = {name.rpartition("/")[2] for name in archive.namelist()}
    if "constants.pkl" in members:
        raise CheckpointError(f"{file.name} is a TorchScript archive, which holds code; save its state_dict()")
    if "data.pkl" not in members:
        raise CheckpointError(f"{file.name} is a zip archive that torch.save did not write")
    return _read_pickle(file)


def _is_pickle(head: bytes) -> bool:
    """The PROTO opcode and a protocol number: every pickle of protocol 2 or later."""
    return len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL


def _read_pickle(file: BinaryIO) -> object:
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


_KINDS: tuple[tuple[Callable[[bytes], bool], Callable[[BinaryIO], object]], ...] = (
    (_is_safetensors, _read_safetensors),  # first: its header length can look like a pickle's first bytes
    (_is_zip, _read_zip),
    (_is_pickle, _read_pickle),
)


def _describe(head: bytes) -> str:
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


def _explain(file: BinaryIO, error: Exception) -> str:
    """Says in one sentence why a reader failed."""
    refused = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
    if refused is None:
        return f"{file.name} is damaged, incomplete or no checkpoint ({type(error).__name__} while reading it)"
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if all(content.find(attribute) >= 0 for attribute in (b"_parameters", b"_modules")):
            return f"{file.name} is a whole pickled model, which is code; save its state_dict() instead"
    return f"{file.name} refers to {refused[1]}, which is code; only tensors in plain containers are read"
