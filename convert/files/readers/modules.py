"""State dict and geometry of a pickled network, read off the stand-ins for its modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...attention.supported import OVERRIDABLE
from ...errors import CheckpointError
from ...spec import CONVOLUTIONS, ConvSpec, reversed_pads
from .common.geometry import StoredConvolution, describe
from .common.limits import MAX_DEPTH, MAX_NAME, MAX_TENSORS, Budget
from .common.quantised import DEQUANTISED, ROUNDING
from .common.stored import OddTensor, StoredTensor
from .pickle_machine import StandIn

_CONVOLUTIONS = "torch.nn.modules.conv."
_KINDS = {kind.__name__: key for key, kind in CONVOLUTIONS.items()}
_QUANTISED = ("torch.ao.nn.quantized.modules.conv.", "torch.nn.quantized.modules.conv.")
_QUANTISED_STATE = (  # what a quantised convolution of torch's gives as its state, in a tuple
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed", "output_padding"),
    *("groups", "padding_mode", "weight", "bias", "scale", "zero_point", "training"),
)
_METHODS = (*OVERRIDABLE, "_call_impl", "_slow_forward")  # that a call looks up on the instance
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_SCRIPTED = "__torch__."
_ENTRY = 200  # bytes that an entry takes besides its name
_UNSEEN = 1000  # bytes that a module takes whose layers are not seen


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a module holds.

    Attributes:
        own: Where its tensors are.
        buffers: Where others are, of which some may not belong to its state.
        hidden: Names of those that do not.
        children: Where its children are.
    """

    own: Mapping[object, object]
    buffers: Mapping[object, object]
    hidden: list[object]
    children: Mapping[object, object]

    def tensors(self, budget: Budget) -> Iterator[tuple[str, StoredTensor | OddTensor]]:
        """The module's own tensors by name; each entry looked at is charged, since modules may share their parts.

        Raises:
            CheckpointError: A name is that of a parameter and of a buffer.
        """
        budget.spend(steps=len(self.own) + len(self.buffers) + len(self.hidden))
        if not self.own.keys().isdisjoint(self.buffers):
            raise CheckpointError("the pickled network has a module with a parameter and a buffer of one name")
        left_out = {key for key in self.hidden if isinstance(key, str)} if self.buffers else set()
        for part, skipped in ((self.own, set()), (self.buffers, left_out)):
            for key, value in part.items():
                if isinstance(value, StoredTensor | OddTensor) and isinstance(key, str) and key not in skipped:
                    yield key, value


def is_module(value: object) -> bool:
    """Whether a value stands in for a module, pickled or scripted."""
    return isinstance(value, StandIn) and _parts(value) is not None


def flatten(root: StandIn, budget: Budget) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
    """Tensors of a pickled network by name, and its convolutions.

    Args:
        root: What stands in for the network.
        budget: Charged for the names, and for what is looked at.

    Raises:
        CheckpointError: The modules hold each other too deeply, as in a circle, or have too many names, or too long,
            or one for two things.
    """
    tensors: dict[str, object] = {}
    convolutions: dict[str, StoredConvolution] = {}
    names = 0
    for name, module, parts in _walk(root, budget):
        prefix = f"{name}." if name else ""
        own = () if parts is None else parts.tensors(budget)
        found = {_joined(name, key, budget): value for key, value in own}
        if not tensors.keys().isdisjoint(found) or name in convolutions:
            raise CheckpointError(f"the pickled network has two modules called {name[:100]!r}")
        tensors.update(found)
        names += 1 + len(found)
        if names > MAX_TENSORS:
            raise CheckpointError(f"the pickled network has more than {MAX_TENSORS} modules and tensors")
        convolution = _unseen(module, budget) if parts is None else _convolution(module, parts, found, prefix)
        if convolution is not None:
            convolutions[name] = convolution
    return tensors, convolutions


def _joined(name: str, key: str, budget: Budget) -> str:
    """The name of a part of a module."""
    if len(name) + len(key) > MAX_NAME:
        raise CheckpointError(f"the pickled network has names of more than {MAX_NAME} letters")
    joined = f"{name}.{key}" if name else key
    budget.spend(memory=sys.getsizeof(joined) + _ENTRY)
    return joined


def _unseen(module: StandIn, budget: Budget) -> StoredConvolution:
    """What stands for the layers of a module whose parts the file does not list, as for a torch.fx.GraphModule's."""
    budget.spend(memory=_UNSEEN)
    return StoredConvolution.refused(f"it is made by {module.kind[:100]} when it is read, and its layers are not seen")


def _walk(root: StandIn, budget: Budget) -> Iterator[tuple[str, StandIn, _Parts | None]]:
    """Modules in the order of ``named_modules``, each under all of its names; None for parts that are not seen."""
    pending: list[tuple[str, int, StandIn]] = [("", 0, root)]
    while pending:
        name, depth, module = pending.pop()
        parts = _parts(module)
        if parts is None:
            if not root.kind.startswith(_SCRIPTED):  # whose children are among all that it keeps
                yield name, module, None
            continue
        if depth > MAX_DEPTH:
            raise CheckpointError(f"the pickled network nests modules more than {MAX_DEPTH} deep")
        if module.entries:
            raise CheckpointError("the pickled network has a module that others are put into after it was made")
        yield name, module, parts
        budget.spend(steps=len(parts.children))
        if len(pending) + len(parts.children) > MAX_TENSORS:
            raise CheckpointError(f"the pickled network has more than {MAX_TENSORS} modules")
        children = [(key, child) for key, child in parts.children.items() if isinstance(child, StandIn)]
        pending += [(_joined(name, str(key), budget), depth + 1, child) for key, child in reversed(children)]


def _parts(module: StandIn) -> _Parts | None:
    """A module's own tensors and its children, or None for what is no module."""
    state = module.state
    if (packed := _packed(module)) is not None:
        return _Parts({key: packed[key] for key in ("weight", "bias")}, {}, [], {})
    if not isinstance(state, dict):
        return None
    if module.kind.startswith(_SCRIPTED):
        return _Parts(state, {}, [], state)
    parameters, buffers, children = (state.get(f"_{part}") for part in ("parameters", "buffers", "modules"))
    if not (isinstance(parameters, dict) and isinstance(buffers, dict) and isinstance(children, dict)):
        return None
    hidden = state.get("_non_persistent_buffers_set")
    return _Parts(parameters, buffers, hidden if isinstance(hidden, list) else [], children)


def _packed(module: StandIn) -> dict[object, object] | None:
    """The state of a quantised convolution by name, or None for another module."""
    state, is_quantised = module.state, ".quantized." in module.kind and module.kind.startswith("torch.")
    if not is_quantised or not isinstance(state, tuple) or len(state) != len(_QUANTISED_STATE):
        return None
    return dict(zip(_QUANTISED_STATE, state, strict=True))


def _changed(state: Mapping[object, object]) -> str | None:
    """What makes a convolution compute something else than its geometry says, or None."""
    replaced = [name for name in _METHODS if name in state]
    if replaced:
        return f"its {replaced[0]} method was replaced on the instance"
    if state.get("_compiled_call_impl") is not None:  # torch.save leaves it out
        return "its call was compiled, and what that computes is not stored"
    if any(map(state.get, _HOOKS)):
        return "it has hooks, which may change what it computes"
    hiding = [name for name in ("weight", "bias") if name in state]
    return f"its {hiding[0]} is an attribute that hides the parameter" if hiding else None


def _pads_otherwise(state: Mapping[object, object], spec: ConvSpec | None) -> bool:
    """Whether what a convolution keeps besides its padding, by which all modes but zeros pad, is something else."""
    if spec is None or spec.padding_mode == "zeros":
        return False
    kept = state.get("_reversed_padding_repeated_twice")
    return not isinstance(kept, list | tuple) or list(kept) != reversed_pads(spec.pads)


def _convolution(
    module: StandIn, parts: _Parts, tensors: Mapping[str, object], prefix: str
) -> StoredConvolution | None:
    """The convolution that a module is, by its own tensors, or None."""
    packed = _packed(module)
    state = module.state if packed is None else packed
    if not isinstance(state, dict) or not {"kernel_size", "stride", "transposed"} <= state.keys():
        return None
    place, _, kind = module.kind.rpartition(".")
    if f"{place}." not in ((_CONVOLUTIONS,) if packed is None else _QUANTISED) or kind not in _KINDS:
        return StoredConvolution.refused(f"{kind} is not a convolution of torch.nn")
    axes, transposed = _KINDS[kind]
    if packed is None and (problem := _changed(state)) is not None:
        return StoredConvolution.refused(problem)
    own = (f"{prefix}weight", f"{prefix}bias")
    weight, bias = (key if key in tensors else None for key in own)
    if bias is None and any(part.get("bias") is not None for part in (parts.own, parts.buffers)):
        return StoredConvolution.refused("its bias is not one of the plain tensors of its state")
    geometry = {key: state.get(key) for key in ("stride", "padding", "dilation", "groups")}
    geometry["padding_mode"] = state.get("padding_mode", "zeros")  # PyTorch had none before 1.1, and adds it
    if transposed:
        geometry |= {"transposed": True, "output_padding": state.get("output_padding")}
    stored = describe(tensors, weight, bias, geometry)
    if stored.spec is not None and stored.spec.axes != axes:
        return StoredConvolution.refused(f"its weight is not one of {kind}")
    if packed is not None:
        return replace(stored, note=None if stored.spec is None else f"{DEQUANTISED}; {ROUNDING}")
    if _pads_otherwise(state, stored.spec):
        return StoredConvolution.refused("its padding was changed after it was made, which its padding mode ignores")
    return stored
