"""A network of nothing but attention, as in the paper's section 4.

1. Every 2 x 2 pixels become one, with four times the channels, so attention has a quarter of the keys; a linear map
   takes them to the hidden channels.
2. Blocks of attention, residual, norm, feed-forward, residual, norm.
3. The average over all pixels, and a linear classifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ...convert.errors import GeometryError
from ..heads.attention import HeadAttention
from ..heads.grid import Grid
from .encodings import PAPER, AttentionSizes, heads_of


@dataclass(frozen=True)
class ImageKind:
    """Images that are classified.

    Attributes:
        channels: Channels of an image.
        rows: Its rows.
        columns: Its columns.
        classes: Classes.
    """

    channels: int
    rows: int
    columns: int
    classes: int = 10


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to what it reads and normalised (as BERT's).

    Args:
        attention: The attention, which keeps the number of channels.
        feed_forward: Channels inside the feed-forward layer.
    """

    def __init__(self, attention: HeadAttention, feed_forward: int) -> None:
        super().__init__()
        hidden = attention.out_channels
        self.attention = attention
        self.attention_norm = nn.LayerNorm(hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, feed_forward), nn.GELU(), nn.Linear(feed_forward, hidden))
        self.feed_forward_norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, rows, columns, hidden] to the same shape."""
        x = self.attention_norm(x + self.attention(x))
        output: Tensor = self.feed_forward_norm(x + self.feed_forward(x))
        return output


class AttentionNetwork(nn.Module):
    """A classifier of images made of attention.

    Args:
        images: What it classifies.
        sizes: How large it is.

    Raises:
        GeometryError: The images cannot be cut into squares of ``sizes.pixels``.
    """

    def __init__(self, images: ImageKind, sizes: AttentionSizes = PAPER) -> None:
        super().__init__()
        pixels = sizes.pixels
        if images.rows % pixels or images.columns % pixels:
            raise GeometryError(f"images of {images.rows}x{images.columns} cannot be cut into {pixels}x{pixels} pixels")
        self.sizes, self.images = sizes, images
        self.grid = Grid(images.rows // pixels, images.columns // pixels, sizes.padding)
        self.embedding = nn.Linear(images.channels * pixels**2, sizes.hidden)
        self.blocks = nn.ModuleList(self._block() for _ in range(sizes.depth))
        self.classifier = nn.Linear(sizes.hidden, images.classes)

    def _block(self) -> Block:
        sizes = self.sizes
        positions, content = heads_of(sizes, reach=max(self.grid.key_rows, self.grid.key_columns))
        attention = HeadAttention(sizes.hidden, sizes.hidden, positions, content=content, padding=sizes.padding)
        return Block(attention, sizes.feed_forward)

    @property
    def layers(self) -> list[HeadAttention]:
        """The attention layers, from the first block to the last."""
        return [block.attention for block in self.blocks if isinstance(block, Block)]

    def embed(self, images: Tensor) -> Tensor:
        """The first block's input, [batch, rows / pixels, columns / pixels, hidden]."""
        x = F.pixel_unshuffle(images, self.sizes.pixels).permute(0, 2, 3, 1)
        embedded: Tensor = self.embedding(x)
        return embedded

    def forward(self, images: Tensor) -> Tensor:
        """Maps images [batch, channels, rows, columns] to class scores [batch, classes]."""
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.classifier(x.mean(dim=(1, 2)))
        return scores
