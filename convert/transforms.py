"""Whether torch traces a layer or transforms its function, so that tensors made now may be symbols or wrappers.

Such a tensor must not be kept for a later call, and its sizes and values decide nothing.
"""

from __future__ import annotations

from typing import NoReturn

from torch._C import (
    _get_dispatch_mode,
    _get_tracing_state,
    _len_torch_dispatch_stack,
    _TorchDispatchModeKey,
)
from torch._C._functorch import maybe_current_level
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .errors import ConversionError

# Modes in which sizes and values are symbols: FakeTensorMode, and that of make_fx.
_SYMBOLIC = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY)


def refuse_script() -> NoReturn:
    """Refuses TorchScript, which would fix the engine and the tables of one input size."""
    raise ConversionError(
        "TorchScript cannot follow a self-attention layer, which chooses its engine in Python: use torch.export, or "
        "script or trace what restore_model gives back"
    )


def is_scripted() -> bool:
    """Whether ``torch.jit.trace`` records operations."""
    return _get_tracing_state() is not None


def is_traced() -> bool:
    """Whether operations are recorded, or run without values, so that sizes and values may be symbols.

    By ``torch.compile``, ``torch.export``, ``make_fx`` or ``FakeTensorMode``.
    """
    if is_compiling():
        return True
    return _len_torch_dispatch_stack() > 0 and any(_get_dispatch_mode(mode) is not None for mode in _SYMBOLIC)


def is_transformed() -> bool:
    """Whether a trace, a transform of ``torch.func`` or forward-mode differentiation is under way."""
    return maybe_current_level() is not None or forward_ad._current_level >= 0 or is_traced()


def has_numbers(*sizes: object) -> bool:
    """Whether sizes are numbers, also in a trace; those of a trace of several sizes are symbols."""
    if not is_traced():
        return True
    from torch.fx.experimental.symbolic_shapes import has_static_value  # imports sympy, which a trace has done

    return all(map(has_static_value, sizes))  # type: ignore[arg-type]
