"""The trunk of the small vision transformers of ``vits.py``, with attention as timm's ViT or as ConViT has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, HEAD_DIM, DEPTH, GRID, HIDDEN = 144, 9, 16, 3, 8, 288
"""Channels, heads, channels of a head, blocks, tokens of a side, channels of the MLP."""
SHIFTS = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]
"""The tap of each head, (row, column)."""
Numbers = dict[str, Any]
"""A row's own numbers, by name."""


@dataclass(frozen=True)
class Shape:
    """The images of a set.

    Attributes:
        patch: Pixels of a patch's side; an image has 8x8 patches.
        classes: Labels.
    """

    patch: int
    classes: int


class Attention(nn.Module):
    """Multi-head self-attention, as timm's."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens [batch, tokens, 144], each [batch, heads, tokens, 16]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def probabilities(self, x: Tensor) -> Tensor:
        """What each query pays to each key, [batch, heads, queries, keys]."""
        q, k, _ = self.heads(x)
        return (q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)).softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, tokens, 144] to the same shape."""
        found = F.scaled_dot_product_attention(*self.heads(x))
        return self.out(found.transpose(1, 2).flatten(2))


class GatedAttention(Attention):
    """ConViT's attention: a gate mixes what contents and what relative positions pay, both of sum 1.

    Args:
        strength: Factor of the positions' scores at the start.
    """

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.positions, self.gates = nn.Linear(3, HEADS), nn.Parameter(torch.ones(HEADS))
        points = torch.tensor(list(product(range(GRID), repeat=2)), dtype=torch.float32)
        offsets = points - points[:, None]  # [queries, keys, 2]
        self.register_buffer("offsets", torch.cat([offsets, offsets.square().sum(-1, keepdim=True)], -1))
        self.strength = strength

    def start(self) -> None:
        """Lets each head look at its tap: score -strength * |offset - tap|^2, but for a constant."""
        with torch.no_grad():
            self.qkv.weight[2 * WIDTH :] = torch.eye(WIDTH)
            taps = torch.tensor(SHIFTS, dtype=torch.float32)
            self.positions.weight.copy_(self.strength * torch.cat([2 * taps, -torch.ones(HEADS, 1)], 1))

    def probabilities(self, x: Tensor) -> Tensor:
        """What each query pays to each key, [batch, heads, queries, keys]."""
        by_position = self.positions(self.get_buffer("offsets")).permute(2, 0, 1).softmax(-1)
        gates = self.gates.sigmoid().view(-1, 1, 1)
        return (1 - gates) * super().probabilities(x) + gates * by_position

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, tokens, 144] to the same shape."""
        _, _, v = self.heads(x)
        return self.out((self.probabilities(x) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm and beside a shortcut."""

    def __init__(self, attention: Attention, hidden: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), attention, nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, tokens, 144] to the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    """The trunk behind a tokenizer, at the default's start but for the attention's own.

    Args:
        shape: The images.
        tokenizer: Images to [batch, 144, 8, 8]; patches by default.
        gated: Of so many first blocks the attention is gated.
        strength: Of that attention.
        std: Standard deviation of linear layers' weights.
        positions: Standard deviation of the positions.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        tokenizer: nn.Module | None = None,
        gated: int = 0,
        strength: float = 1.0,
        std: float = 0.02,
        positions: float = 0.02,
    ) -> None:
        super().__init__()
        patches = nn.Conv2d(1, WIDTH, shape.patch, stride=shape.patch)
        self.tokenizer = tokenizer or patches
        more = size(self.tokenizer) - size(patches)
        hidden = HIDDEN - round(more / (DEPTH * (2 * WIDTH + 1)))
        self.positions = nn.Parameter(torch.randn(GRID**2, WIDTH) * positions)
        kinds = [GatedAttention(strength) if place < gated else Attention() for place in range(DEPTH)]
        self.blocks = nn.Sequential(*(Block(kind, hidden) for kind in kinds))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, shape.classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for kind in kinds:
            if isinstance(kind, GatedAttention):
                kind.start()

    def tokens(self, images: Tensor) -> Tensor:
        """What the first block sees of images [batch, 1, rows, columns]: [batch, 64, 144]."""
        found: Tensor = self.tokenizer(images)
        return found.flatten(2).transpose(1, 2) + self.positions

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes, [batch, classes]."""
        found: Tensor = self.head(self.norm(self.blocks(self.tokens(images))).mean(1))
        return found

    def attention(self, place: int) -> Attention:
        """The attention of a block."""
        found = self.get_submodule(f"blocks.{place}.attention")
        if not isinstance(found, Attention):
            raise TypeError(f"block {place} has a {type(found).__name__}")
        return found


def size(module: nn.Module) -> int:
    """The number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())
