"""State dict and geometry of a pickled network, read off the stand-ins for its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.formats.geometry import StoredConvolution, describe
from conv2attn.convert.formats.limits import MAX_DEPTH, MAX_TENSORS
from conv2attn.convert.formats.pickle_machine import StandIn
from conv2attn.convert.formats.stored import OddTensor, StoredTensor

_CONVOLUTIONS = "torch.nn.modules.conv."
_SCRIPTED = "__torch__."
_Parts = tuple[Mapping[object, object], Mapping[object, object]]  # tensors and children of a module


def is_module(value: object) -> bool:
    """Whether a value stands in for a module, pickled or scripted."""
    return isinstance(value, StandIn) and _parts(value) is not None


def flatten(root: StandIn) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
    """Tensors of a pickled network by name, and its convolutions.

    Raises:
        CheckpointError: The modules hold each other too deeply, as in a circle, or have too many names.
    """
    tensors: dict[str, object] = {}
    convolutions: dict[str, StoredConvolution] = {}
    names = 0
    for name, module, (own, _) in _walk(root):
        prefix = f"{name}." if name else ""
        found = {f"{prefix}{key}": value for key, value in own.items() if isinstance(value, StoredTensor | OddTensor)}
        tensors.update(found)
        names += 1 + len(found)
        if names > MAX_TENSORS:
            raise CheckpointError(f"the pickled network has more than {MAX_TENSORS} modules and tensors")
        convolution = _convolution(module, tensors, prefix)
        if convolution is not None:
            convolutions[name] = convolution
    return tensors, convolutions


def _walk(root: StandIn) -> Iterator[tuple[str, StandIn, _Parts]]:
    """Modules in the order of ``named_modules``, each under every one of its names."""
    pending: list[tuple[str, int, object]] = [("", 0, root)]
    while pending:
        name, depth, module = pending.pop()
        parts = _parts(module) if isinstance(module, StandIn) else None
        if parts is None or not isinstance(module, StandIn):
            continue
        if depth > MAX_DEPTH:
            raise CheckpointError(f"the pickled network nests modules more than {MAX_DEPTH} deep")
        yield name, module, parts
        children = [(f"{name}.{key}".removeprefix("."), depth + 1, child) for key, child in parts[1].items()]
        pending += reversed(children)
        if len(pending) > MAX_TENSORS:
            raise CheckpointError(f"the pickled network has more than {MAX_TENSORS} modules")


def _parts(module: StandIn) -> _Parts | None:
    """A module's own tensors and its children, or None for what is no module."""
    state = module.state
    if not isinstance(state, dict):
        return None
    if module.kind.startswith(_SCRIPTED):
        return state, state
    parameters, buffers, children = (state.get(f"_{part}") for part in ("parameters", "buffers", "modules"))
    if not (isinstance(parameters, dict) and isinstance(buffers, dict) and isinstance(children, dict)):
        return None
    hidden = state.get("_non_persistent_buffers_set")
    left_out = {key for key in hidden if isinstance(key, str)} if isinstance(hidden, list) else set()
    return {**parameters, **{key: value for key, value in buffers.items() if key not in left_out}}, children


def _convolution(module: StandIn, tensors: Mapping[str, object], prefix: str) -> StoredConvolution | None:
    """The convolution that a module is, or None."""
    state = module.state
    if not isinstance(state, dict) or not {"kernel_size", "stride", "transposed"} <= state.keys():
        return None
    if module.kind != f"{_CONVOLUTIONS}Conv2d":
        kind = module.kind.rpartition(".")[2]
        return StoredConvolution.refused(f"{kind} is not nn.Conv2d")
    if "forward" in state:
        return StoredConvolution.refused("its forward method was replaced on the instance")
    own = (f"{prefix}weight", f"{prefix}bias")
    weight, bias = (key if key in tensors else None for key in own)
    geometry = {key: state.get(key) for key in ("stride", "padding", "dilation", "groups", "padding_mode")}
    return describe(tensors, weight, bias, geometry)
