"""The gate between where a head's position says to look and where the image says to look.

    probabilities = (1 - g) p_position + g p_content,        0 <= g <= 1

With g = 0 a head looks at positions alone, so a converted layer with a closed gate is still its convolution.

A differentiable function of a free parameter that stays in [0, 1] and reaches 0 has slope 0 there, since 0 is its
minimum: a sigmoid, a square or a sine would either never be closed or never open. So g is the parameter itself, cut off
at both ends. Beyond an end the slope of the cut is 0, from where nothing would lead back; there the gradient is kept
where a step against it leads back, and 0 where it would lead further away (the projected gradient).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..transforms import is_traced


def opening(gate: Tensor) -> Tensor:
    """g: the parameter cut off at 0 and 1, [num_heads].

    Its derivative is 1 in between and at both ends, and beyond them where that leads back. Which way a step leads is
    known of the whole gradient only, so a call of a layer takes g once (``LayerValues.opened``): cut off in parts, the
    parts that lead back would add up without the others. A layer that is traced has the plain cut in its graph.
    """
    if is_traced() or not gate.requires_grad:
        return gate.clamp(0, 1)
    opened: Tensor = _Cut.apply(gate)  # type: ignore[no-untyped-call]
    return opened


def mixed(opened: Tensor, by_position: Tensor, by_content: Tensor) -> Tensor:
    """(1 - g) p_position + g p_content.

    Args:
        opened: g, [num_heads].
        by_position: [num_queries, num_heads, num_keys].
        by_content: [batch, num_queries, num_heads, num_keys].

    Returns:
        [batch, num_queries, num_heads, num_keys].
    """
    opened = opened.to(by_content.dtype).unsqueeze(-1)
    return (1 - opened) * by_position + opened * by_content


class _Cut(torch.autograd.Function):
    """``clamp(0, 1)``, whose gradient beyond the ends is that of the way back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate: Tensor) -> Tensor:
        return gate.clamp(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gate,), (gradient,) = ctx.saved_tensors, gradients
        leads_away = ((gate < 0) & (gradient > 0)) | ((gate > 1) & (gradient < 0))
        return gradient.masked_fill(leads_away, 0)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        (gate,), (tangent,) = ctx.saved_tensors, tangents
        return tangent.masked_fill((gate < 0) | (gate > 1), 0)
