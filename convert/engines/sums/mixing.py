"""The value projections of all heads, sum_h W_h A_h, and its derivatives.

Without groups, A_h is multiplied as it lies, head by head or in one batch. Bringing the heads of a place together, for
one long sum, takes two passes over A: with groups, and with few channels, that costs less than many small products.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LONG = 16  # terms of a sum over the channels of a head that is worth a product of its own


def all_heads(weight: Tensor) -> Tensor:
    """W as one matrix for each group, [groups, num_heads * in, out] channels.

    Args:
        weight: [num_heads, groups, out_channels / groups, in_channels / groups].
    """
    return weight.permute(1, 0, 3, 2).flatten(1, 2)


def mixed(read: Tensor, mixing: Tensor) -> Tensor:
    """sum_h W_h A_h.

    Args:
        read: A, [num_heads, places, in_channels].
        mixing: What ``all_heads`` returns.

    Returns:
        [places, out_channels].
    """
    if not _is_by_head(read, mixing):
        return _product(_by_place(read, len(mixing)), mixing).transpose(0, 1).flatten(1)
    weights = _by_head(mixing, len(read))
    total = read[0] @ weights[0]
    for attended, weight in zip(read[1:], weights[1:], strict=True):
        total.addmm_(attended, weight)
    return total


def mixing_gradients(read: Tensor, mixing: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The derivatives of ``mixed`` with respect to A and W, in their shapes; ``gradient`` is dY."""
    heads, groups = len(read), len(mixing)
    if _is_by_head(read, mixing):
        copies = gradient.expand(heads, -1, -1)
        by_weight = torch.bmm(read.transpose(1, 2), copies)
        return torch.bmm(copies, _by_head(mixing, heads).transpose(1, 2)), by_weight.view(mixing.shape)
    grouped = torch.unflatten(gradient, 1, (groups, -1)).transpose(0, 1)
    by_weight = _product(_by_place(read, groups).transpose(1, 2), grouped)
    passed = torch.unflatten(_product(grouped, mixing.transpose(1, 2)), 2, (heads, -1))
    return passed.permute(2, 1, 0, 3).flatten(2).contiguous(), by_weight


def _is_by_head(read: Tensor, mixing: Tensor) -> bool:
    """Whether each head has a product of its own."""
    return len(mixing) == 1 and read.shape[2] >= _LONG


def _by_head(mixing: Tensor, heads: int) -> Tensor:
    """W of the only group, [num_heads, in, out] channels."""
    return torch.unflatten(mixing[0], 0, (heads, -1))


def _by_place(read: Tensor, groups: int) -> Tensor:
    """A with one head after the other at each place: [groups, places, num_heads * in_channels / groups]."""
    return torch.unflatten(read, 2, (groups, -1)).permute(2, 1, 0, 3).flatten(2)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """``torch.bmm``; of a single pair as one matrix product, which is faster."""
    return (left[0] @ right[0]).unsqueeze(0) if len(left) == 1 else torch.bmm(left, right)
