"""How a layer is traced: what stands for it in a graph, and the check that what was assumed still holds.

A traced layer cannot look at its positions to choose an engine: the choice was made when it was traced. If alpha or
the centres change afterwards, it must not compute something else in silence.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.module import _has_any_global_hook

from ..errors import ConversionError
from .regime_cache import asserts

_MESSAGE = "alpha or centers changed after the layer was traced; trace it again"
_NOT_POSITIVE = "alpha must be positive and finite"


@torch.library.custom_op("conv2attn::check_unchanged", mutates_args=("now",))
def _check_unchanged(now: Tensor, seen: list[float]) -> None:
    """Raises where a compiled graph can raise; called a mutation, so that no pass removes it."""
    if now.flatten().tolist() != seen:
        raise RuntimeError(_MESSAGE)


@_check_unchanged.register_fake
def _(now: Tensor, seen: list[float]) -> None:
    return None


@torch.library.custom_op("conv2attn::check_positive", mutates_args=("alpha",))
def _check_positive(alpha: Tensor) -> None:
    """As ``_check_unchanged``."""
    if not bool(((alpha > 0) & alpha.isfinite()).all()):
        raise RuntimeError(_NOT_POSITIVE)


@_check_positive.register_fake
def _(alpha: Tensor) -> None:
    return None


def assume_positive(alpha: Tensor) -> None:
    """Adds a check to the graph that is being traced: trained locality strengths must stay positive.

    Args:
        alpha: Locality strengths, [num_heads].
    """
    alpha = alpha.detach()
    if _raises_by_itself(alpha):
        _check_positive(alpha)
    else:
        _assert(((alpha > 0) & alpha.isfinite()).all(), _NOT_POSITIVE)


def assume_unchanged(now: Tensor, seen: list[float]) -> None:
    """Adds a check to the graph that is being traced: values must stay as they were when it was traced.

    Compiled for a CPU it is an operator of its own, whose exception reaches the caller. Compiled for CUDA, and in an
    exported program or a traced module, which must not depend on this package, it is torch's own assertion.

    Args:
        now: A parameter of the layer.
        seen: The values that it had, in order.
    """
    if _raises_by_itself(now):
        _check_unchanged(now, seen)
    else:
        values = torch.stack([now.new_full((), value) for value in seen])  # new_tensor would copy them at each call
        _assert((now.detach().flatten() == values).all(), _MESSAGE)


def _raises_by_itself(now: Tensor) -> bool:
    """Whether the check is an operator of its own: in what torch.compile makes, but where it would wait for a GPU."""
    compiled = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
    return compiled and not asserts(now.device)


def _assert(condition: Tensor, message: str) -> None:
    """An assertion that does not wait for the device; an ONNX file, whose parameters do not change, needs none."""
    if torch.onnx.is_in_onnx_export():
        return
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace
        _scripted_assertion()(condition, message)
    else:
        torch._assert_async(condition, message)


@functools.cache
def _scripted_assertion() -> Callable[[Tensor, str], Tensor]:
    """An assertion that a traced module keeps; it would drop torch's own, which has no result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the user's own torch.jit.trace gives the same
        scripted: Callable[[Tensor, str], Tensor] = torch.jit.script(_holds)
    return scripted


def _holds(condition: Tensor, message: str) -> Tensor:
    if not bool(condition):
        raise RuntimeError(message)
    return condition


def kept_apart(x: Tensor) -> Tensor:
    """The same numbers, as the result of an operation of their own while a layer is compiled.

    Inductor (torch 2.13) fails on a view that a backward pass keeps for a convolution of symbolic size. It sees through
    a copy and a sum with zero, but not through two changes of sign, which are exact and cost nothing once compiled.
    """
    return x.neg().neg() if torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting() else x


def one_call(layer: nn.Module, x: fx.Proxy) -> fx.Proxy:
    """Puts a layer into the graph of ``torch.fx.symbolic_trace`` as one call, as torch's own layers are.

    The tracer has already traced the layer's forward hooks, if it has any; then only its ``forward`` is called, so that
    they do not run twice.

    Raises:
        ConversionError: The layer is itself the root that is traced.
    """
    path = x.tracer.path_of_module(layer)  # type: ignore[attr-defined]
    if not path:
        raise ConversionError("torch.fx traces this layer as one call inside a network: wrap it in nn.Sequential")
    if layer._forward_hooks or layer._forward_pre_hooks or _has_any_global_hook():
        return x.tracer.create_proxy("call_method", "forward", (x.tracer.create_proxy("get_attr", path, (), {}), x), {})
    return x.tracer.create_proxy("call_module", path, (x,), {})
