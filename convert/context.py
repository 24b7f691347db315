"""Behaviour of a layer that torch calls under autocast, in a trace or in a transform.

A convolution under autocast rounds its input, kernel and bias to autocast's dtype, and gives a result of that dtype.
The attention in its place does the same, and then computes with autocast off: positions, scores and probabilities are
not values of the network and stay in at least float32, since in bfloat16 a head looks at the wrong pixel.

So under autocast the certificate is that of the layer with rounded parameters on the rounded input, against the
convolution under the same autocast. Against the exact convolution of the numbers before they were rounded, more is
added: with u the unit roundoff of autocast's dtype, w' = w (1 + d_w), x' = x (1 + d_x), b' = b (1 + d_b) and |d| <= u,

    | (sum w' x' + b') - (sum w x + b) |  <=  (2 u + u^2) sum |w||x| + u |b|

if nothing overflows or underflows in that dtype.

In a trace or a transform new tensors may be symbols or wrappers: they are not kept for a later call, and nothing is
decided by their sizes and values.
"""

from __future__ import annotations

import io
import logging
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor
from torch._C import (
    _get_dispatch_mode,
    _get_tracing_state,
    _len_torch_dispatch_stack,
    _TorchDispatchModeKey,
)
from torch._C._functorch import maybe_current_level
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.fx import config

from .errors import ConversionError

# Asked once: torch.compile of torch 2.11 cannot follow the question.
_WITH_AUTOCAST = frozenset(filter(torch.amp.is_autocast_available, ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "xla")))


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype to which autocast rounds on a device now, or None where it is off."""
    kind = device.type
    if kind not in _WITH_AUTOCAST or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor as autocast hands it to a convolution: float64 stays as it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.to(dtype)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Switches autocast off on a device, where it is on, for as long as the context lasts."""
    return nullcontext() if autocast_dtype(device) is None else torch.autocast(device.type, enabled=False)


@contextmanager
def without_stack_traces() -> Iterator[None]:
    """Lets ``torch.export`` leave out the line of Python of each operation, which takes up to half of its time.

    A torch without this switch notes them all the same.
    """
    before = getattr(config, "do_not_emit_stack_traces", False)
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


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


@contextmanager
def eagerly() -> Iterator[None]:
    """Runs what ``torch.compile`` compiles as it is written; nothing is compiled meanwhile."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and the import takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def same_generators(devices: Sequence[int]) -> Iterator[None]:
    """Lets generators of random numbers go on where they were: Python's, NumPy's, torch's, those of CUDA devices."""
    python, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)


@contextmanager
def silently() -> Iterator[None]:
    """Without what torch's tracers print, log and warn of, which is about their internals."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
