"""The terms of the relative attention that read the image: (a), (b) and (c) of the draft's eq. (7).

    score = (W_qry x_q) . (W_key x_k)      (a) content of the query with content of the key
          + (W_qry x_q) . (W^_key r)       (b) content of the query with the relative position
          + u . (W_key x_k)                (c) content of the key
          + v . r                          (d) the relative position alone: ``encoding.py``

A convolution does not look at the image to decide where to look, so a converted layer has no content terms
at all. ``SelfAttention.add_content`` adds them so that the function of the layer stays what it was, and training can
change it. ``proofs/claims/theorem/decomposition.py`` derives the terms, ``proofs/claims/theorem/position_alone.py``
which parameters must be zero for (d) alone. There are two ways:

    one softmax, as eq. (7) has it      p = softmax((a) + (b) + (c) + (d)),    W_qry = 0 and u = 0 at first
    gated                               p = (1 - g) softmax((d)) + g softmax((a) + (b) + (c)),    g = 0 at first

In one softmax, a position that is sharp drowns content: at alpha = 128 content scores have no gradient. Behind a gate
they have their own softmax, so the gate has a gradient however sharp the position is, and position stays separable.
With g = 0 a head looks at positions alone, so a converted layer with a closed gate is still its convolution.

A differentiable function of a free parameter that stays in [0, 1] and reaches 0 has slope 0 there, since 0 is its
minimum: a sigmoid, a square or a sine would either never be closed or never open. So g is the parameter itself, cut off
at both ends. Beyond an end the slope of the cut is 0, from where nothing would lead back; there the gradient is kept
where a step against it leads back, and 0 where it would lead further away (the projected gradient).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..transforms import is_traced
from .regime import compute_dtype


class ContentTerms(nn.Module):
    """Parameters of the terms (a), (b) and (c), for all heads.

    Args:
        num_heads: Heads of the layer.
        in_channels: Channels of the layer's input.
        key_dim: Dimension D_k in which queries and keys are compared.
        encoding_dim: Dimension D_p of the relative positional encoding.
        gated: Whether the terms have a softmax of their own, behind a gate.
        device: Where the parameters live.
        dtype: Their precision.

    Attributes:
        query_weight: W_qry, [num_heads, key_dim, in_channels]; zero at first, but behind a gate.
        key_weight: W_key, [num_heads, key_dim, in_channels].
        position_weight: W^_key, [num_heads, key_dim, encoding_dim]; zero at first behind a gate.
        key_bias: u, [num_heads, key_dim]; zero at first.
        gate: [num_heads], zero at first; g is ``opening`` of it. None without a gate. It is in at least float32, since
            steps of training are smaller than what half precision can tell from 1.
    """

    gate: nn.Parameter | None

    def __init__(
        self,
        num_heads: int,
        in_channels: int,
        *,
        key_dim: int,
        encoding_dim: int,
        gated: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()

        def parameter(columns: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(num_heads, key_dim, columns, device=device, dtype=dtype))

        self.query_weight = parameter(in_channels)
        self.key_weight = parameter(in_channels)
        self.position_weight = parameter(encoding_dim)
        self.key_bias = nn.Parameter(torch.zeros(num_heads, key_dim, device=device, dtype=dtype))
        nn.init.normal_(self.key_weight, std=in_channels**-0.5)
        self.register_parameter("gate", None)
        if gated:
            nn.init.normal_(self.query_weight, std=(in_channels * key_dim) ** -0.5)  # scores of about unit size
            precise = compute_dtype(self.query_weight.dtype)
            self.gate = nn.Parameter(torch.zeros(num_heads, device=device, dtype=precise))
        else:
            nn.init.normal_(self.position_weight, std=encoding_dim**-0.5)

    @property
    def score_flops(self) -> int:
        """FLOPs of the terms of one head, query and key, and of their part in a softmax."""
        return 2 * (self.key_weight.shape[1] + self.position_weight.shape[2]) + 4

    def is_off(self) -> bool:
        """Whether attention ignores the image: by a closed gate, or W_qry = 0 and u = 0 without one."""
        if self.gate is not None:
            return bool((self.gate <= 0).all())
        return not (self.query_weight.any() or self.key_bias.any())

    def scores(self, queries: Tensor, keys: Tensor, encoding: Tensor) -> Tensor:
        """The sum of the three terms.

        Args:
            queries: Channels of the padded input under each query, [batch, num_queries, in_channels].
            keys: Channels of every pixel of the padded input, [batch, num_keys, in_channels].
            encoding: r_delta, [num_queries, num_keys, encoding_dim].

        Returns:
            [batch, num_queries, num_heads, num_keys], in the dtype of ``encoding``.
        """
        dtype = encoding.dtype
        projected_queries = torch.einsum("bqc,hdc->bqhd", queries.to(dtype), self.query_weight.to(dtype))
        projected_keys = torch.einsum("bkc,hdc->bhdk", keys.to(dtype), self.key_weight.to(dtype))
        with_content = torch.einsum("bqhd,bhdk->bqhk", projected_queries + self.key_bias.to(dtype), projected_keys)
        vectors = torch.einsum("bqhd,hdp->bqhp", projected_queries, self.position_weight.to(dtype))
        return with_content + torch.einsum("bqhp,qkp->bqhk", vectors, encoding)


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
