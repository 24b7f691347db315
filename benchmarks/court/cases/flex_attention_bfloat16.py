"""A masked attention kernel in bfloat16."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling
from torch import Tensor
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/163588",
    kind="batches",
    question="Attention with a mask is silently incorrect in bfloat16: the kernel and eager code differ",
    truth=Rounding("both round their sums to bfloat16, in other places", "bfloat16", "bfloat16"),
    said="Closed; a maintainer finds both within one unit in the last place of a precise result.",
    read="excerpt",
    emulated="the kernel: torch's own for the processor, called as a black box",
)


def _by_hand(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v


def build(folder: Path) -> Sides:
    """Normal numbers times 5, as there, and a causal mask."""
    q, k, v = (5 * torch.randn(1, 2, 48, 32).bfloat16() for _ in range(3))
    seen = torch.ones(48, 48, dtype=torch.bool).tril()
    other = lambda q, k, v, seen: F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # noqa: E731
    return Sides(Calling(_by_hand).eval(), other, (q, k, v, seen))
