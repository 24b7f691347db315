"""Weights that something computes: parametrisations, and the older hooks of weight_norm, spectral_norm and pruning.

The attention layer carries what computes them, with its very parameters and buffers: state dict, gradients and
optimizers stay the convolution's, and the way back carries all of it again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ..heads.values import OWN_NAMES

COMPUTABLE = ("weight", "bias")
_STATE_HOOKS = ("_state_dict_hooks", "_load_state_dict_pre_hooks")


def class_of(module: nn.Module) -> type:
    """The class of a module, as it was before a parametrisation made a new one of it."""
    return parametrize.type_before_parametrizations(module)


def parametrised(module: nn.Module) -> tuple[str, ...]:
    """Names of the tensors that parametrisations compute."""
    return tuple(cast(Any, module.parametrizations)) if parametrize.is_parametrized(module) else ()


def hooked(module: nn.Module) -> dict[str, Any]:
    """The hooks of PyTorch that compute a tensor before each call, by the tensor's name."""
    found: dict[str, Any] = {}
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm | SpectralNorm):
            found[hook.name] = hook
        elif isinstance(hook, BasePruningMethod):
            found[hook._tensor_name] = hook
    return found


def is_computed(module: nn.Module) -> bool:
    """Whether a tensor of the module is computed, and not a plain parameter."""
    return bool(parametrised(module) or hooked(module))


@torch.no_grad()
def value(module: nn.Module, name: str) -> Tensor | None:
    """A tensor as the module's next call in eval mode has it; looking at it changes nothing."""
    hook = hooked(module).get(name)
    if isinstance(hook, SpectralNorm):
        computed = hook.compute_weight(module, do_power_iteration=False)
    elif isinstance(hook, WeightNorm):
        computed = hook.compute_weight(module)
    elif hook is not None:
        computed = hook.apply_mask(module)
    elif name in parametrised(module):
        computed = _computed_aside(cast(Any, module.parametrizations)[name])
    else:
        computed = getattr(module, name)
    return None if computed is None else computed.detach()


def _computed_aside(parametrisation: nn.Module) -> Tensor:
    """The tensor of a parametrisation, computed by a copy: its own state stays, and the global generator's."""
    found = copy.deepcopy(parametrisation).eval()
    devices = sorted({tensor.device.index for tensor in found.state_dict().values() if tensor.is_cuda})
    with torch.random.fork_rng(devices=devices):
        return cast(Tensor, found())


@contextmanager
def in_eval_mode(network: nn.Module) -> Iterator[None]:
    """While it lasts, every module is in eval mode; then each is in the mode that it had.

    In train mode a batch norm learns from what it sees, and a power iteration of spectral_norm changes its vectors. A
    class's own ``train`` may do more than note the mode, such as choosing a graph or merging weights: it is called on
    the way there and on the way back, or not at all.
    """
    modes = {module: module.training for module in network.modules()}
    try:
        if any(modes.values()):
            _to_eval_mode(network)
        yield
    finally:
        for module, mode in modes.items():  # parents before their children
            if module.training != mode and type(module).train is not nn.Module.train:
                module.train(mode)
        for module, mode in modes.items():
            module.training = mode


def _to_eval_mode(network: nn.Module) -> None:
    try:
        network.eval()
    except NotImplementedError:  # by a program of torch.export, whose operations have their mode
        for module in network.modules():
            module.training = False


def stand_in(module: nn.Module, name: str) -> nn.Parameter | None:
    """The parameter, or in place of one that is computed, a new one with its value."""
    if name in module._parameters:
        return module._parameters[name]
    found = value(module, name)
    return None if found is None else nn.Parameter(found, requires_grad=found.requires_grad)


def carry(source: nn.Module, target: nn.Module) -> None:
    """Makes a module that has stand-ins compute them as another module does, with its very parameters and buffers."""
    for name in parametrised(source):
        parametrize.register_parametrization(target, name, nn.Identity(), unsafe=True)
        cast(Any, target.parametrizations)[name] = cast(Any, source.parametrizations)[name]
    hooks = hooked(source)
    for name in hooks:
        del target._parameters[name]
        vars(target)[name] = vars(source)[name]
    if not hooks:
        return
    for name, parameter in source._parameters.items():
        if name not in (*target._parameters, *OWN_NAMES):
            target.register_parameter(name, parameter)
    for name, buffer in source._buffers.items():
        target.register_buffer(name, buffer, persistent=name not in source._non_persistent_buffers_set)
    for key, hook in source._forward_pre_hooks.items():
        if hook in hooks.values():
            target._forward_pre_hooks[key] = hook
    for table in _STATE_HOOKS:
        getattr(target, table).update(getattr(source, table))


def detached(model: nn.Module) -> dict[int, Any]:
    """The memo that ``copy.deepcopy`` needs: tensors that hooks computed cannot be copied as they are."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for name in hooked(module):
            tensor = vars(module).get(name)
            if isinstance(tensor, Tensor):
                memo[id(tensor)] = tensor.detach().clone()
    return memo


def uncomputable(module: nn.Module) -> str | None:
    """Which tensor is computed in a way that cannot be carried, or None if there is none."""
    known: Mapping[str, Any] = {**hooked(module), **dict.fromkeys(parametrised(module))}
    odd = [name for name in known if name not in COMPUTABLE]
    if odd:
        return f"its {odd[0]} is parametrised, which an attention layer has no such tensor for"
    for name in COMPUTABLE:
        if name not in module._parameters and name not in known:
            return (
                f"its {name} is not a plain parameter, and neither a parametrisation nor a hook of PyTorch computes it"
            )
    return None
