"""The state of a network as its modules hold it, beside what its classes' own ``state_dict`` says of it.

A class can leave a part out of its state dict (a frozen encoder, as Lightning's documents show), rename keys, cast
values or add some. A file of that is not the network, so every file is written from ``complete_state``.

Extra state (``get_extra_state``) is any object of Python. A safetensors file keeps it as the bytes of ``torch.save``,
which ``torch.load(weights_only=True)`` reads.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import CheckpointError, OutputError, first_line, listed
from ..tensors import have_same_bytes, independent, place, versions_of, with_versions

_EXTRA_STATE = "_extra_state"  # the last part of a key, in PyTorch


def is_extra_state(key: str) -> bool:
    """Whether a key of a state dict is that of a module's extra state, which can be any object."""
    return key.rpartition(".")[2] == _EXTRA_STATE


def tensors_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state dict, without extra state."""
    return {key: value for key, value in state.items() if isinstance(value, Tensor) and not is_extra_state(key)}


def extra_state_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The extra state in a state dict."""
    return {key: value for key, value in state.items() if is_extra_state(key)}


def held_state(model: nn.Module, *, keep_vars: bool = False) -> OrderedDict[str, Any]:
    """Parameters, persistent buffers and extra state of all modules, whatever their classes' ``state_dict`` says.

    The order is that of PyTorch's state dicts. What a class's ``_save_to_state_dict`` adds comes with it, as that is
    what its ``_load_from_state_dict`` reads.
    """
    state: OrderedDict[str, Any] = OrderedDict()
    for name, module in model.named_modules(remove_duplicate=False):
        prefix, own = f"{name}." if name else "", dict[str, Any]()
        nn.Module._save_to_state_dict(module, state, prefix, keep_vars)
        module._save_to_state_dict(own, prefix, keep_vars)
        state |= {key: value for key, value in own.items() if key not in state}
    return state


def complete_state(model: nn.Module) -> dict[str, Any]:
    """The state dict of a network, with all that its modules hold.

    Returns:
        The class's own state dict; where that leaves something out, the modules' own state, in PyTorch's order.

    Raises:
        OutputError: The class renames, changes or adds something, or a tensor has no values; all keys are named.
    """
    said, held = model.state_dict(), held_state(model)
    both = {**said, **held}
    if odd := [key for key, value in both.items() if not (isinstance(value, Tensor) or is_extra_state(key))]:
        raise OutputError(f"the model has state that is not a tensor and cannot be written: {listed(odd)}")
    tensors = tensors_of(both)
    if empty := [key for key, value in tensors.items() if is_lazy(value) or value.is_meta]:
        raise OutputError(f"the model has tensors without values, on the meta device or lazy: {listed(empty)}")
    changed = [key for key, value in tensors_of(said).items() if key in held and not _is_same(value, held[key])]
    added = [key for key in said if key not in held]
    if changed or added:
        faults = [f"changes {listed(changed)}"] if changed else []
        faults += [f"has {listed(added)}, which no module holds under that name"] if added else []
        raise OutputError(
            f"the state dict of {type(model).__name__} is not what its modules hold, and what is written would not be "
            f"the network: it {' and '.join(faults)}"
        )
    return said if said.keys() == held.keys() else with_versions(held, versions_of(said))


def differing(model: nn.Module, state: Mapping[str, Tensor]) -> list[str]:
    """Keys under which a network's modules hold other numbers than a state dict, each in the network's precision."""
    held = tensors_of(held_state(model))
    return [key for key, value in state.items() if key in held and not is_loaded(held[key], value)]


def is_loaded(held: Tensor, value: Tensor) -> bool:
    """Whether a tensor has the bytes that another has in its dtype and on its device."""
    if held.numel() != value.numel():
        return False
    return _is_same(held, value.to(device=held.device, dtype=held.dtype).reshape(held.shape))


def _is_same(one: Tensor, other: Tensor) -> bool:
    return place(one) == place(other) or have_same_bytes(one, other)


def packed(key: str, value: object) -> Tensor:
    """Extra state as bytes, a tensor of uint8 of shape [number of bytes].

    Raises:
        OutputError: It holds objects that PyTorch reads by running code only.
    """
    torch.save(value, stream := io.BytesIO())
    tensor = torch.from_numpy(np.frombuffer(stream.getvalue(), dtype=np.uint8).copy())
    try:
        unpacked(key, tensor)
    except CheckpointError as error:
        raise OutputError(f"extra state that is not data cannot be written: {error}") from error
    return tensor


def unpacked(key: str, tensor: Tensor) -> Any:
    """Extra state from its bytes, as data.

    Raises:
        CheckpointError: It is damaged, or holds more than data.
    """
    try:
        return torch.load(io.BytesIO(tensor.numpy().tobytes()), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever damaged bytes give
        raise CheckpointError(f"the extra state {key!r} cannot be read as data: {first_line(error)[:200]}") from error


def parameter_orders(model: nn.Module) -> Iterator[tuple[str, ...]]:
    """Names in the order in which a list of averages can stand: all parameters, and those that train."""
    named = list(model.named_parameters())
    yield tuple(name for name, _ in named)
    yield tuple(name for name, parameter in named if parameter.requires_grad)


def independent_tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """A state dict as safetensors has it.

    Raises:
        OutputError: It has extra state, which such a file cannot hold for a network to load.
    """
    if extra := extra_state_of(state):
        raise OutputError(f"safetensors cannot hold extra state, which a .pth file holds: {listed(list(extra))}")
    return independent(state)
