"""State dicts: tensors that are one or have the same bytes, copies, versions of classes, and files of tensors."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from .errors import OutputError

Place = tuple[object, ...]


Versions = Mapping[str, Mapping[str, object]] | None
"""Metadata of a state dict, by the names of modules: the version of each class that wrote it."""


def place(tensor: Tensor) -> Place:
    """Storage, offset and layout of a tensor: equal for two tensors only if they are one."""
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def have_same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bytes, so that 0 and -0 differ, in the same shape and dtype on one device."""
    if one is other:
        return True
    alike = one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
    flat = (tensor.detach().reshape(-1).contiguous().view(torch.uint8) for tensor in (one, other))
    return alike and torch.equal(*flat)


def aliases(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Names that share their numbers with an earlier name, each with that name.

    Safetensors has no shared tensors. As ``safetensors.torch.save_model`` does, one of the names keeps the numbers, and
    the file's metadata say of each other name which one that is.
    """
    first: dict[Place, str] = {}
    kept = {name: first.setdefault(place(tensor), name) for name, tensor in state.items() if tensor.numel()}
    return {name: other for name, other in kept.items() if other != name}


def independent(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, none sharing memory with another, as safetensors wants them."""
    used: set[int] = set()
    tensors = {}
    for name, value in state.items():
        tensor = value.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in used:
            tensor = tensor.clone()
        used.add(tensor.untyped_storage().data_ptr())
        tensors[name] = tensor
    return tensors


def copies(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of each tensor, without the rest of its storage; those that are one stay one, and classes' versions.

    Extra state, which can be any object, stays the object that it is.
    """
    copied: dict[Place, Tensor] = {}
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    for tensor in tensors.values():
        if place(tensor) not in copied:
            copied[place(tensor)] = tensor.detach().clone()
    made = {name: copied[place(value)] if name in tensors else value for name, value in state.items()}
    return with_versions(made, versions_of(state))


def versions_of(state: object) -> Versions:
    """The versions of a state dict; None where it tells none, or is no state dict."""
    found: Versions = getattr(state, "_metadata", None)
    return found


def with_versions(tensors: Mapping[str, Any], versions: Versions) -> OrderedDict[str, Any]:
    """A state dict of tensors, which tells versions if there are some, as PyTorch's own do."""
    state = OrderedDict(tensors)
    if versions is not None:
        state._metadata = versions  # type: ignore[attr-defined]
    return state


def write_safetensors(tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Writes tensors and texts as safetensors, with the permissions of any new file."""
    try:
        save_file(tensors, path, metadata={"format": "pt", **metadata})
    except SafetensorError as error:
        raise OutputError(f"{path.name} cannot be written: {error}") from error
    os.umask(mask := os.umask(0o022))
    path.chmod(0o666 & ~mask)  # the library's own file is for its owner alone


def write_stream(save: Callable[[IO[bytes]], object], path: Path) -> None:
    """Writes a file by a function that writes to a stream, as ``torch.save`` does.

    Where a stream fails, as on a full disk, torch ends the whole process; so it writes into memory.
    """
    save(stream := io.BytesIO())
    path.write_bytes(stream.getbuffer())
