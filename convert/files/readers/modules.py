"""State dict and convolutions of a pickled network, whose modules may be of classes that are not known here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...attention.reader import geometry
from ...attention.supported import unsupported_reason
from ...errors import CheckpointError
from ...spec import CONVOLUTIONS, Convolution
from .described import DescribedConvolution, describe
from .inert import Inert

_PARTS = ("_parameters", "_buffers", "_modules")
_MAX_DEPTH = 64  # modules in modules
_QUANTISED = ("torch.ao.nn.quantized.modules.conv.", "torch.nn.quantized.modules.conv.")
_QUANTISED_STATE = (  # what a quantised convolution of torch's gives as its state, in a tuple
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed", "output_padding"),
    *("groups", "padding_mode", "weight", "bias", "scale", "zero_point", "training"),
)
DEQUANTISED = (
    "its weights were stored as integers, and are dequantised: (integer - zero point) * scale; what computes with them "
    "rounds its input and its result to integers, which the layer does not"
)


@dataclass(frozen=True)
class PickledNetwork:
    """A network in a pickle.

    Attributes:
        tensors: Its state dict.
        convolutions: Its convolutions, by the names of their layers.
        whole: The network itself, if all its modules are torch.nn's own; else None.
    """

    tensors: dict[str, Any]
    convolutions: dict[str, DescribedConvolution]
    whole: nn.Module | None


def is_module(value: object) -> bool:
    """Whether a value is a module or stands for one."""
    return isinstance(value, nn.Module) or (isinstance(value, Inert) and (_packed(value) or _state(value)) is not None)


def pickled_network(root: Any) -> PickledNetwork:
    """The state dict of a network, and its convolutions.

    Raises:
        CheckpointError: The modules hold each other too deeply, as in a circle.
    """
    tensors: dict[str, Any] = {}
    convolutions: dict[str, DescribedConvolution] = {}
    is_whole = True
    for name, module in _walk(root):
        prefix, packed = (f"{name}." if name else ""), _packed(module)
        state = packed or _state(module)
        if state is None:  # as of modules that make their parts when they are read
            is_whole = False
            convolutions[name] = DescribedConvolution.refused(f"it is made by {module.kind[:100]}, unknown here")
            continue
        is_whole = is_whole and isinstance(module, nn.Module) and not _holds_inert(vars(module))
        hidden = state.get("_non_persistent_buffers_set") or ()
        own = {"weight": state["weight"], "bias": state["bias"]} if packed else {}
        own |= _positions(state)
        own |= {key: value for part in _PARTS[:2] for key, value in dict(state.get(part, ())).items()}
        tensors |= {f"{prefix}{key}": value for key, value in own.items() if value is not None and key not in hidden}
        found = _convolution(module, state, packed is not None, prefix, tensors)
        if found is not None:
            convolutions[name] = found
    return PickledNetwork(tensors, convolutions, root if is_whole and isinstance(root, nn.Module) else None)


def _positions(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Positions of an attention layer at rest, which holds them as numbers, under the keys of its state dict."""
    numbers = getattr(state.get("_regime"), "state", None)
    if not isinstance(numbers, dict) or "log_alpha" in dict(state.get("_parameters", ())):
        return {}
    try:
        return {name: torch.tensor(numbers[name], dtype=numbers["dtype"]) for name in ("alpha", "centers")}
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError("the positions of a pickled attention layer are not numbers") from error


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
    """The attributes of a module, or None for what is no module."""
    if isinstance(module, nn.Module):
        return vars(module)
    arguments = [module.state, *module.args] if isinstance(module, Inert) else []
    return next((state for state in arguments if isinstance(state, dict) and set(_PARTS) <= state.keys()), None)


def _packed(module: Any) -> Mapping[str, Any] | None:
    """The state of a quantised convolution by name, or None for another module."""
    if not isinstance(module, Inert) or not module.kind.startswith(_QUANTISED):
        return None
    known = isinstance(module.state, tuple) and len(module.state) == len(_QUANTISED_STATE)
    return dict(zip(_QUANTISED_STATE, module.state, strict=True)) if known else None


def _holds_inert(state: Mapping[str, Any]) -> bool:
    """Whether something unknown is among the attributes of a module, or in one of its dictionaries and lists."""
    inner = [each.values() if isinstance(each, dict) else each for each in state.values() if _is_container(each)]
    return any(isinstance(value, Inert) for values in (state.values(), *inner) for value in values)


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list | tuple)


def _convolution(
    module: Any, state: Mapping[str, Any], is_packed: bool, prefix: str, tensors: Mapping[str, Tensor]
) -> DescribedConvolution | None:
    """The convolution that a module is, or None."""
    if isinstance(module, Convolution):
        if (problem := unsupported_reason(module)) is not None:
            return DescribedConvolution.refused(problem)
        if module._forward_hooks or module._forward_pre_hooks:
            return DescribedConvolution.refused("it has hooks, which may change what it computes")
        return DescribedConvolution(
            f"{prefix}weight", None if module.bias is None else f"{prefix}bias", geometry(module)
        )
    if not {"kernel_size", "stride", "transposed"} <= state.keys():
        return None
    kind = module.kind.rpartition(".")[2] if isinstance(module, Inert) else type(module).__name__
    kinds = {known.__name__: key for key, known in CONVOLUTIONS.items()}
    if not is_packed or kind not in kinds:
        return DescribedConvolution.refused(f"{kind} is not a convolution of torch.nn")
    given = {key: state[key] for key in ("stride", "padding", "dilation", "groups", "padding_mode")}
    if kinds[kind][1]:
        given |= {"transposed": True, "output_padding": state["output_padding"]}
    plain = {f"{prefix}{key}": state[key] for key in ("weight", "bias") if isinstance(state[key], Tensor)}
    bias = f"{prefix}bias" if f"{prefix}bias" in plain else None
    return replace(describe(plain, f"{prefix}weight", bias, given), note=DEQUANTISED)
