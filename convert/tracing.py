"""A check inside a traced layer that what was assumed while tracing it still holds.

A traced layer cannot look at its positions to choose an engine: the choice was made when it was traced. If alpha or
the centres change afterwards, it must not compute something else in silence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from conv2attn.convert.regime_cache import asserts

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
    """Puts a check that locality strengths that are trained stay positive into the graph that is being traced.

    Args:
        alpha: Locality strengths, [num_heads].
    """
    alpha = alpha.detach()
    if _raises_by_itself(alpha):
        _check_positive(alpha)
    else:
        torch._assert_async(((alpha > 0) & alpha.isfinite()).all(), _NOT_POSITIVE)


def assume_unchanged(now: Tensor, seen: list[float]) -> None:
    """Puts the check into the graph that is being traced.

    Compiled for a CPU it is an operator of its own, whose exception reaches the caller. Compiled for CUDA, and in an
    exported program, which must not depend on this package, it is torch's own assertion, which does not wait.

    Args:
        now: A parameter of the layer.
        seen: The values that it had, in order.
    """
    if _raises_by_itself(now):
        _check_unchanged(now, seen)
    else:
        values = torch.stack([now.new_full((), value) for value in seen])  # new_tensor would copy them at each call
        torch._assert_async((now.flatten() == values).all(), _MESSAGE)


def _raises_by_itself(now: Tensor) -> bool:
    """Whether the check is an operator of its own: not in exported programs, nor where it would wait for a GPU."""
    return not (torch.compiler.is_exporting() or asserts(now.device))
