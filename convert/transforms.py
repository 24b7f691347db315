"""What torch's traces and function transforms hide from a layer.

A layer reads the values of alpha and the centres to choose how it is computed, and keeps what follows from them for the
next call. Inside a trace or a transform both need care: a tensor made there may be a wrapper or a symbol that must not
be kept, the values may differ between the calls of a ``torch.vmap``, or may not exist. What cannot be read is then not
guessed: the layer is computed by an engine that needs no values (``Regime.unread``).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

# Modes in which sizes and values are symbols: FakeTensorMode, and that of make_fx.
_SYMBOLIC = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY)


def is_traced() -> bool:
    """Whether operations are recorded, or run without values, so that sizes and values may be symbols.

    By ``torch.compile``, ``torch.export``, ``torch.jit.trace``, ``make_fx`` or ``FakeTensorMode``.
    """
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or _is_symbolic()


def _is_symbolic() -> bool:
    if not torch._C._len_torch_dispatch_stack():
        return False
    return any(torch._C._get_dispatch_mode(mode) is not None for mode in _SYMBOLIC)


def is_transformed() -> bool:
    """Whether a trace, or a transform of ``torch.func``, is under way, which tensors made now may belong to."""
    return is_traced() or _functorch.maybe_current_level() is not None


def is_differentiated(tensor: Tensor) -> bool:
    """Whether derivatives with respect to a parameter are asked for: of a backward pass, or of ``torch.func``."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        return True
    if torch.compiler.is_compiling():
        return False
    return _has_tangent(tensor) or _is_under_grad(tensor)


def _has_tangent(tensor: Tensor) -> bool:
    """Whether forward-mode differentiation follows a tensor; no tensor has a tangent outside of its levels."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def _is_under_grad(tensor: Tensor) -> bool:
    """Whether ``torch.func.grad`` or ``torch.func.jvp`` follows a tensor, at whatever level of nesting."""
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
