"""The networks of the experiments: attention alone, and the residual networks beside them.

A network of nothing but attention, as in the paper's section 4, with any encoding of positions:

1. Every 2 x 2 pixels become one, with four times the channels, so attention has a quarter of the keys; a linear map
   takes them to the hidden channels.
2. Blocks of attention, residual, norm, feed-forward, residual, norm.
3. The average over all pixels, and a linear classifier.

ResNet10 and ResNet18 for small images (He et al.): a 3x3 convolution without stride, four stages with one or two blocks
each, the channels doubled and the pixels halved from the second on, the average over all pixels, a classifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..convert.errors import GeometryError, SelectionError
from ..convert.examples.networks import ResidualBlock
from .heads.attention import HeadAttention
from .heads.encodings import Content, Gaussian, IsotropicGaussian, Learned, SinusoidalAbsolute, SinusoidalRelative
from .heads.positions import Grid, Positions


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of an attention network.

    Attributes:
        encoding: How heads know positions, which "+content" may follow.
        hidden: Channels between blocks.
        feed_forward: Channels inside a feed-forward layer.
        padding: Pixels of zeros around the image that are keys, too.
        pixels: Rows, or columns, that become one first; 1 leaves the image as it is.
        spread: Standard deviation of the first centres of Gaussian heads, in pixels.
        key_dim: Dimension in which content is compared.
        sharpness: Factor of the first scores of positions: alpha of Gaussian heads, and how far the first scores of
            others are spread. The larger it is, the nearer a head's first attention is to one pixel.
    """

    encoding: str = "quadratic"
    depth: int = 6
    num_heads: int = 9
    hidden: int = 400
    feed_forward: int = 512
    padding: int = 0
    pixels: int = 2
    spread: float = 2.0
    key_dim: int = 400
    sharpness: float = 1.0


PAPER = AttentionSizes()
"""The widths of the paper's experiments on CIFAR-10."""

_POSITIONS: dict[str, Callable[[AttentionSizes, int], Positions]] = {
    "quadratic": lambda sizes, _: IsotropicGaussian(sizes.num_heads, alpha=sizes.sharpness, spread=sizes.spread),
    "gaussian": lambda sizes, _: Gaussian(sizes.num_heads, alpha=sizes.sharpness, spread=sizes.spread),
    "learned": lambda sizes, reach: Learned(sizes.num_heads, reach=reach, sharpness=sizes.sharpness),
    "sinusoidal": lambda sizes, reach: SinusoidalRelative(
        sizes.num_heads, longest=2.0 * reach, sharpness=sizes.sharpness
    ),
    "absolute": lambda sizes, reach: SinusoidalAbsolute(
        sizes.num_heads, longest=2.0 * reach, sharpness=sizes.sharpness
    ),
}
_CONTENT = "+content"


def heads_of(sizes: AttentionSizes, *, reach: int) -> tuple[Positions, Content | None]:
    """Scores of positions of a layer's heads, and of content, or None, for at most ``reach`` keys along an axis.

    Raises:
        SelectionError: There is no such encoding.
    """
    name = sizes.encoding.removesuffix(_CONTENT)
    if name not in _POSITIONS:
        known = ", ".join(_POSITIONS)
        raise SelectionError(f'there is no encoding {sizes.encoding!r}; there are {known}, each also with "{_CONTENT}"')
    content = None
    if name != sizes.encoding:
        content = Content(sizes.num_heads, sizes.hidden, key_dim=sizes.key_dim, reach=reach)
    return _POSITIONS[name](sizes, reach), content


@dataclass(frozen=True)
class ImageKind:
    """Images that are classified, into so many classes."""

    channels: int
    rows: int
    columns: int
    classes: int = 10


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to what it reads and normalised (as BERT's)."""

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


WIDTH = 64
"""Channels of the first stage in the paper's networks."""


def resnet(images: ImageKind, *, blocks: int, width: int = WIDTH) -> nn.Sequential:
    """An untrained network from images [batch, channels, rows, columns] to class scores, ``width`` channels first."""
    layers: list[nn.Module] = [
        nn.Conv2d(images.channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels = width
    for stage in range(4):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(ResidualBlock(channels, width * 2**stage, stride=stride))
            channels = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, images.classes))
