"""What torch's traces and function transforms hide from a layer.

A layer reads the values of alpha and the centres to choose how it is computed, and keeps what follows from them for the
next call. Inside a trace or a transform both need care: a tensor made there may be a wrapper or a symbol that must not
be kept, the values may differ between the calls of a ``torch.vmap``, or may not exist. What cannot be read is then not
guessed: the layer is computed by an engine that needs no values (``Regime.unread``).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import (
    _functorch,
    _get_dispatch_mode,
    _get_tracing_state,
    _len_torch_dispatch_stack,
    _TorchDispatchModeKey,
)
from torch._C._functorch import maybe_current_level
from torch.autograd import forward_ad
from torch.compiler import is_compiling

# Modes in which sizes and values are symbols: FakeTensorMode, and that of make_fx.
_SYMBOLIC = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY)


def is_traced() -> bool:
    """Whether operations are recorded, or run without values, so that sizes and values may be symbols.

    By ``torch.compile``, ``torch.export``, ``torch.jit.trace``, ``make_fx`` or ``FakeTensorMode``.
    """
    if is_compiling() or _get_tracing_state() is not None:
        return True
    return _len_torch_dispatch_stack() > 0 and any(_get_dispatch_mode(mode) is not None for mode in _SYMBOLIC)


def is_transformed() -> bool:
    """Whether a trace, or a transform of ``torch.func``, is under way, which tensors made now may belong to."""
    return maybe_current_level() is not None or is_traced()


def is_differentiating() -> bool:
    """Whether tensors may be followed by forward-mode differentiation or by ``torch.func``."""
    return forward_ad._current_level >= 0 or maybe_current_level() is not None


def is_differentiated(tensor: Tensor) -> bool:
    """Whether forward-mode differentiation, or ``torch.func`` at whatever level of nesting, follows a tensor."""
    if is_compiling():
        return False
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        return True
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_gradtrackingtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def common_values(tensor: Tensor) -> Tensor:
    """The tensor that all calls of a ``torch.vmap`` see, where it is the same for all.

    The members of an ensemble (``torch.func.stack_module_state``) have weights of their own, but mostly one alpha.

    Raises:
        RuntimeError: The calls see different values.
    """
    while _functorch.is_functorch_wrapped_tensor(tensor):
        mapped = _functorch.maybe_get_bdim(tensor) if _functorch.is_batchedtensor(tensor) else None
        tensor = _functorch.get_unwrapped(tensor)
        if mapped is not None:
            first = tensor.select(mapped, 0)
            if not torch.equal(tensor, first.unsqueeze(mapped).expand_as(tensor)):
                raise RuntimeError("the values differ between the calls of torch.vmap")
            tensor = first
    return tensor
