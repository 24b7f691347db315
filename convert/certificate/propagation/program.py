"""What runs when a network is called, beside its classes' own ``forward``: all that the certificate does not follow.

A converted network is followed by running it on tensors without values (``network.py``). What could make its real calls
do something else is looked for first, and named; what its modules hold must be the same at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import module as modules
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
)

from ...attention.layer import LEARNED, SelfAttention
from ...attention.read import OfSubclass
from ...errors import Problem

State = dict[tuple[str, ...], tuple[object, int | None]]  # of a module

_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward")
_MODULE = {name: getattr(nn.Module, name) for name in _CALLS}
_PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
_ATTENTION = {name: getattr(SelfAttention, name) for name in ("forward", "_values", "_attend", "_convolve")}


def not_followed(model: nn.Module) -> tuple[Problem, ...]:
    """What stands between the network's classes and what a call of it computes, by name."""
    found = [Problem("", reason) for reason in surroundings()]
    for name, module in model.named_modules():
        found += [Problem(name, reason) for reason in _in_the_way(module)]
    return tuple(found)


def surroundings() -> Iterator[str]:
    """What acts on every call in this thread."""
    if torch._C._is_any_autocast_enabled():
        yield "autocast is on, which changes the precision of operations"
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    yield from (f"the mode {type(mode).__name__} is on, which may replace operations" for mode in foreign(modes))
    if modules._global_forward_hooks or modules._global_forward_pre_hooks:
        yield "there are forward hooks for all modules, which may compute something else"
    if any(getattr(nn.Module, name) is not own for name, own in _MODULE.items()):
        yield "torch.nn.Module is called in another way than PyTorch's"


def foreign(modes: list[object]) -> list[object]:
    """The modes that may compute something else; torch's default device only says where tensors are made."""
    return [mode for mode in modes if not isinstance(mode, DeviceContext)]


def own_kinds(kinds: Iterable[type]) -> list[str]:
    """Names of the classes whose operations may be their own, among those of tensors."""
    return [kind.__name__ for kind in kinds if kind not in _PLAIN_TENSORS]


class Sight(TorchDispatchMode):
    """Watches for operations that write into a tensor where torch's function modes see no function.

    They see the functions that Python calls, but not where they are switched off (``torch._C.DisableTorchFunction``),
    nor what TorchScript runs. A write through ``.data`` leaves no trace on the tensor that it changes, so one that
    happens there would not be noticed at all.

    Args:
        refuse: Called before such an operation; raises an error.
    """

    def __init__(self, refuse: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refuse = refuse

    @contextmanager
    def closed(self) -> Iterator[None]:
        """While a function is followed, which may write; below a dispatch mode torch does not count every write."""
        if _get_current_dispatch_mode() is not self:
            yield
            return
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation of torch."""
        if func._schema.is_mutable:
            self._refuse()
        return func(*args, **(kwargs or {}))


def changed_part(before: State, after: State) -> str | None:
    """The name of something that is no longer what it was, or None."""
    for key, (value, version) in before.items():
        if key not in after or after[key][0] is not value or after[key][1] != version:
            return ".".join(key)
    return None


def state_of(shadow: nn.Module) -> State:
    """What the modules hold, and how often tensors among it were written to."""
    held = {}
    for name, module in shadow.named_modules():
        own = {**module._parameters, **module._buffers, **module._modules}
        for key, value in (*vars(module).items(), *own.items()):
            version = value._version if isinstance(value, Tensor) and not value.is_meta else None
            held[(*name.split("."), key) if name else (key,)] = (value, version)
    return held


def _in_the_way(module: nn.Module) -> Iterator[str]:
    if module._forward_hooks or module._forward_pre_hooks:
        yield "it has hooks, which may compute something else"
    if module._compiled_call_impl is not None:
        yield "it is compiled, by code that is not followed"
    own = [name for name in ("forward", *_CALLS) if name in vars(module)]
    if own:
        yield f"it has its own {own[0]} in place of its class's"
    if not isinstance(module, fx.GraphModule) and any(getattr(type(module), n) is not f for n, f in _MODULE.items()):
        yield f"{type(module).__name__} is called in another way than torch.nn.Module"
    if isinstance(module, SelfAttention):
        yield from _not_the_layer(module)
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        if tensor is not None and own_kinds([type(tensor)]):
            yield f"its {name} is a {type(tensor).__name__}, not a plain tensor"


def _not_the_layer(layer: SelfAttention) -> Iterator[str]:
    if parametrize.is_parametrized(layer):
        yield "its parameters are computed while it runs"
    elif type(layer) not in LEARNED or isinstance(layer, OfSubclass):
        yield f"{type(layer).__name__} is a subclass of the attention layer, which may compute something else"
    elif any(getattr(SelfAttention, name) is not own for name, own in _ATTENTION.items()):
        yield "the attention layer's own code was replaced"
