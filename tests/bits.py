"""Comparison of tensors by their bits: to ``torch.equal`` -0 and 0 are the same."""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and dtype, and in every number the same bits."""
    if one.dtype != other.dtype:
        return False
    views = (each.detach().contiguous().view(_INTEGERS[each.element_size()]) for each in (one, other))
    return torch.equal(*views)
