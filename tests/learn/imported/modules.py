"""Attention layers written from published formulas, which the tests of imports read: none is a copy of other code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class GaussianAttention(nn.Module):
    """The draft's eq. 12 to 16, with the authors' parameters, on images [batch, rows, columns, dim]."""

    def __init__(self, dim: int, heads: int, *, isotropic: bool) -> None:
        super().__init__()
        self.attention_centers = nn.Parameter(torch.randn(heads, 2))
        noise = torch.randn(heads) if isotropic else torch.randn(heads, 2, 2)
        self.attention_spreads = nn.Parameter((1 if isotropic else torch.eye(2)) + noise / 8)
        self.value = nn.Linear(heads * dim, dim)

    def precision(self) -> Tensor:
        """P = S S^T, [heads, 2, 2]."""
        if self.attention_spreads.ndim == 1:
            return self.attention_spreads.square()[:, None, None] * torch.eye(2).to(self.attention_spreads)
        return self.attention_spreads @ self.attention_spreads.mT

    def attention_probabilities(self, rows: int, columns: int) -> Tensor:
        """[heads, pixels, pixels]."""
        like = self.attention_centers
        along = (torch.arange(length, dtype=like.dtype) for length in (rows, columns))
        pixels = torch.cartesian_prod(*along)
        away = pixels[None, None] - pixels[None, :, None] - like[:, None, None]
        return (-0.5 * torch.einsum("hqki,hij,hqkj->hqk", away, self.precision(), away)).softmax(-1)

    def forward(self, hidden_states: Tensor, attention_mask: Any, head_mask: Any = None) -> Tensor:
        """[batch, rows, columns, dim], as the authors call it: masks are not read."""
        rows, columns = hidden_states.shape[1:3]
        maps = self.attention_probabilities(rows, columns)
        read = torch.einsum("hqk,bkd->bqhd", maps, hidden_states.flatten(1, 2)).flatten(2)
        output: Tensor = self.value(read).unflatten(1, (rows, columns))
        return output
