"""Convolutions whose geometry a file itself describes, so that they can be converted without the network's code.

Those of a pickled network are here, with its state dict; its modules may be of classes that are not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...attention.reader import geometry
from ...attention.supported import unsupported_reason
from ...errors import CheckpointError
from ...spec import Convolution, ConvSpec
from .torch import Inert

_PARTS = ("_parameters", "_buffers", "_modules")
_MAX_DEPTH = 64  # modules in modules


@dataclass(frozen=True)
class DescribedConvolution:
    """A convolution that a file describes.

    Attributes:
        weight: Key of its weight among the file's tensors.
        bias: Key of its bias, or None.
        spec: Its geometry, or None if no class of convolutions has it.
        problem: Why ``spec`` is None.
        note: Remark about its weights for the user, or None.
        original: The layer's name in the file, or None if it is the name used here.
    """

    weight: str
    bias: str | None
    spec: ConvSpec | None
    problem: str | None = None
    note: str | None = field(default=None, compare=False)
    original: str | None = field(default=None, compare=False)

    @classmethod
    def refused(cls, problem: str) -> DescribedConvolution:
        """A convolution that cannot be converted."""
        return cls("", None, None, problem)


def is_module(value: object) -> bool:
    """Whether a value is a module or stands for one."""
    return _state(value) is not None


def pickled_network(root: Any) -> tuple[dict[str, Any], dict[str, DescribedConvolution], nn.Module | None]:
    """The state dict of a network, its convolutions by name, and the network itself if all of it is torch.nn's own."""
    tensors: dict[str, Any] = {}
    convolutions: dict[str, DescribedConvolution] = {}
    is_whole = isinstance(root, nn.Module)
    for name, module in _walk(root):
        prefix, state = f"{name}." if name else "", _state(module)
        if state is None:  # as of modules that make their parts when they are read
            is_whole = False
            convolutions[name] = DescribedConvolution.refused(f"it is made by {module.kind[:100]}, unknown here")
            continue
        is_whole = is_whole and isinstance(module, nn.Module) and not _holds_inert(vars(module))
        hidden = state.get("_non_persistent_buffers_set") or ()
        own = _positions(state) | dict(state.get("_parameters", ())) | dict(state.get("_buffers", ()))
        tensors |= {f"{prefix}{key}": value for key, value in own.items() if value is not None and key not in hidden}
        if (found := _convolution(module, state, prefix)) is not None:
            convolutions[name] = found
    return tensors, convolutions, root if is_whole else None


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Modules in the order of ``named_modules``, each under all of its names."""
    pending: list[tuple[str, int, Any]] = [("", 0, root)]
    while pending:
        name, depth, module = pending.pop()
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"the pickled network nests modules more than {_MAX_DEPTH} deep")
        yield name, module
        children = dict((_state(module) or {}).get("_modules", ()))
        pending += [
            (f"{name}.{key}" if name else str(key), depth + 1, child)
            for key, child in reversed(children.items())
            if isinstance(child, nn.Module | Inert)
        ]


def _state(module: Any) -> Mapping[str, Any] | None:
    """The attributes of a module, or None if the value is no module."""
    if isinstance(module, nn.Module):
        return vars(module)
    arguments = [module.state, *module.args] if isinstance(module, Inert) else []
    return next((state for state in arguments if isinstance(state, dict) and set(_PARTS) <= state.keys()), None)


def _positions(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Positions of an attention layer at rest, which holds them as numbers, under the keys of its state dict."""
    numbers: Any = getattr(state.get("_regime"), "state", None)
    is_regime = isinstance(numbers, dict) and {"alpha", "centers", "dtype"} <= numbers.keys()
    if not is_regime or "log_alpha" in dict(state.get("_parameters", ())):
        return {}
    return {name: torch.tensor(numbers[name], dtype=numbers["dtype"]) for name in ("alpha", "centers")}


def _holds_inert(state: Mapping[str, Any]) -> bool:
    """Whether something unknown is among the attributes of a module, or in one of its dictionaries and lists."""
    containers = [each for each in state.values() if isinstance(each, dict | list | tuple)]
    inner = [each.values() if isinstance(each, dict) else each for each in containers]
    return any(isinstance(value, Inert) for values in (state.values(), *inner) for value in values)


def _convolution(module: Any, state: Mapping[str, Any], prefix: str) -> DescribedConvolution | None:
    """The convolution that a module is, or None."""
    if isinstance(module, Convolution):
        if (problem := unsupported_reason(module)) is not None:
            return DescribedConvolution.refused(problem)
        if module._forward_hooks or module._forward_pre_hooks:
            return DescribedConvolution.refused("it has hooks, which may change what it computes")
        bias = None if module.bias is None else f"{prefix}bias"
        return DescribedConvolution(f"{prefix}weight", bias, geometry(module))
    if not {"kernel_size", "stride", "transposed"} <= state.keys():
        return None
    kind = module.kind.rpartition(".")[2] if isinstance(module, Inert) else type(module).__name__
    return DescribedConvolution.refused(f"{kind} is not a convolution of torch.nn")
