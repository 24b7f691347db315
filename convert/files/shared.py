"""Tensors of a state dict that are the same numbers under several names.

Safetensors has no shared tensors. As ``safetensors.torch.save_model`` does, one of the names keeps the numbers, and the
file's metadata say of each other name which one that is; ``read_checkpoint`` puts the names back.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..errors import OutputError
from .readers.common.limits import MAX_OVERLAP, SPARE

Place = tuple[object, ...]


def place(tensor: Tensor) -> Place:
    """Where a tensor's numbers lie and how they are read: the same for two tensors only if they are one."""
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def aliases(state: Mapping[str, Tensor]) -> dict[str, str]:
    """The names whose numbers another name, an earlier one, holds already, each with that name."""
    first: dict[Place, str] = {}
    found = {}
    for name, tensor in state.items():
        kept = first.setdefault(place(tensor), name) if tensor.numel() else name
        if kept != name:
            found[name] = kept
    return found


def independent(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, none sharing memory with another, as safetensors wants them."""
    seen: set[int] = set()
    tensors = {}
    for name, value in state.items():
        tensor = value.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        tensors[name] = tensor
    return tensors


def copies(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of each tensor; those that are one stay one."""
    copied: dict[Place, Tensor] = {}
    for tensor in state.values():
        if place(tensor) not in copied:
            copied[place(tensor)] = tensor.detach().clone()
    return {name: copied[place(tensor)] for name, tensor in state.items()}


def check_written_apart(state: Mapping[str, Tensor]) -> None:
    """Refuses to write every name's numbers by themselves where that makes far more of them.

    Raises:
        OutputError: They come to more than twice what the tensors hold, and 256 MB.
    """
    shared = aliases(state)
    held = sum(tensor.nbytes for name, tensor in state.items() if name not in shared)
    written = held + sum(state[name].nbytes for name in shared)
    if written > MAX_OVERLAP * held + SPARE:
        raise OutputError(
            f"{len(shared)} of the {len(state)} tensors share their numbers with others; safetensors would hold "
            f"{written} bytes in place of {held}, a file that ends in .pth or .pt keeps them shared"
        )
