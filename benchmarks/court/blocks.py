"""The vocabulary of the cases: small networks of the kinds that people ask about, with random weights.

Networks in half precision compute norms, softmax and tables of angles in float32, as theirs do; a copy in float64
computes all of it in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Make = Callable[[int], nn.Module]


def wide(x: Tensor) -> torch.dtype:
    """The precision of norms, softmax and angles in a network of this precision."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


class RMSNorm(nn.Module):
    """Root mean square norm, written out as language models have it."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        y = x.to(wide(x))
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class WrittenNorm(nn.Module):
    """Layer norm over one axis, written out.

    Args:
        width: Numbers along the axis.
        eps: Added to the variance, or to the deviation.
        axis: The axis.
        correction: 1 divides the variance by one less than the width (Bessel).
        is_eps_inside: Whether eps is under the root.
    """

    def __init__(
        self, width: int, eps: float = 1e-5, axis: int = -1, *, correction: int = 0, is_eps_inside: bool = True
    ) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps, self.axis, self.correction, self.is_eps_inside = eps, axis, correction, is_eps_inside

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the axis."""
        variance, mean = torch.var_mean(x, self.axis, correction=self.correction, keepdim=True)
        root = torch.sqrt(variance + self.eps) if self.is_eps_inside else torch.sqrt(variance) + self.eps
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return (x - mean) / root * self.weight.view(shape) + self.bias.view(shape)


class QuickGELU(nn.Module):
    """x sigmoid(1.702 x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        return x * torch.sigmoid(1.702 * x)


class Rotary(nn.Module):
    """Rotary positions.

    Args:
        head_dim: Channels of a head.
        is_interleaved: Whether neighbours are rotated together; else the halves are.
        frequencies_in: Precision to which frequencies are rounded first.
        positions_in: Precision to which positions are rounded first.
        start: The first position.
        base: Of the frequencies.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        is_interleaved: bool = False,
        frequencies_in: torch.dtype | None = None,
        positions_in: torch.dtype | None = None,
        start: int = 0,
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        self.head_dim, self.is_interleaved, self.start, self.base = head_dim, is_interleaved, start, base
        self.frequencies_in, self.positions_in = frequencies_in, positions_in

    def angles(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cosines and sines, [..., length, head_dim / 2]."""
        precision = wide(x)
        frequencies = self.base ** -(torch.arange(0, self.head_dim, 2, dtype=precision) / self.head_dim)
        if positions is None:
            positions = torch.arange(self.start, self.start + x.shape[-2])
        positions = positions.to(precision)
        if self.frequencies_in is not None and precision == torch.float32:
            frequencies = frequencies.to(self.frequencies_in).to(precision)
        if self.positions_in is not None and precision == torch.float32:
            positions = positions.to(self.positions_in).to(precision)
        angles = positions[..., None] * frequencies
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotates queries or keys, [batch, heads, length, head_dim]; positions are [batch, 1, length]."""
        cos, sin = self.angles(x, positions)
        if self.is_interleaved:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    """Attention by products, with four projections.

    Args:
        width: Channels.
        heads: Heads.
        rotary: Rotary positions.
        is_causal: Whether later positions are hidden.
        bias: Whether projections have one.
        fill: Score of what is hidden.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        rotary: nn.Module | None = None,
        is_causal: bool = False,
        bias: bool = True,
        fill: float | None = None,
    ) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))
        self.heads, self.rotary, self.is_causal, self.fill = heads, rotary, is_causal, fill

    def projected(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [batch, heads, length, head_dim]."""
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return q, k, v

    def attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention's result; the last query belongs to the last key. The mask says which keys there are."""
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if self.is_causal:
            ahead = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1 + k.shape[-2] - q.shape[-2])
            hidden = ahead if mask is None else ahead | ~mask[:, None, None]
            scores = scores.masked_fill(hidden, torch.finfo(q.dtype).min if self.fill is None else self.fill)
        weights = scores.softmax(-1, dtype=wide(q)).to(q.dtype)
        return self.out((weights @ v).transpose(1, 2).flatten(-2))

    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attends, [batch, length, width]."""
        return self.attended(*self.projected(x, positions), mask)


class FusedAttention(nn.Module):
    """Attention with one projection for queries, keys and values, and torch's own kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: Tensor) -> Tensor:
        """Attends, [batch, length, width]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))

    def split(self) -> Attention:
        """The same attention with four projections."""
        width = self.out.in_features
        other = Attention(width, self.heads)
        for place, layer in enumerate((other.q, other.k, other.v)):
            rows = slice(place * width, (place + 1) * width)
            layer.weight, layer.bias = nn.Parameter(self.qkv.weight[rows]), nn.Parameter(self.qkv.bias[rows])
        other.out = self.out
        return other


class FeedForward(nn.Module):
    """Two layers with an activation between them."""

    def __init__(self, width: int, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, hidden), activation, nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Applies them."""
        return self.down(self.act(self.up(x)))


class Gated(nn.Module):
    """A gated feed-forward layer, as language models have it."""

    def __init__(self, width: int, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down, self.act = nn.Linear(hidden, width, bias=False), activation

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        return self.down(self.act(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A transformer block with norms in front. ``add`` joins a branch to the stream."""

    def __init__(self, width: int, norm: Make, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = norm(width), attention, norm(width), mlp
        self.add: Callable[[Tensor, Tensor], Tensor] = torch.add

    def forward(self, x: Tensor, *context: Tensor | None) -> Tensor:
        """Applies attention and the feed-forward layer, [batch, length, width]."""
        x = self.add(x, self.attention(self.norm1(x), *context))
        return self.add(x, self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    """A small vision transformer of images of 32x32 pixels in patches of 8x8, whose result is its tokens."""

    def __init__(
        self,
        width: int = 64,
        depth: int = 4,
        heads: int = 4,
        *,
        norm: Make = nn.LayerNorm,
        activation: Callable[[], nn.Module] = nn.GELU,
        attention: Callable[[int, int], nn.Module] = Attention,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.5 * torch.randn(1, 17, width))
        make = (
            Block(width, norm, attention(width, heads), FeedForward(width, 4 * width, activation()))
            for _ in range(depth)
        )
        self.blocks, self.norm = nn.Sequential(*make), norm(width)

    def embedded(self, images: Tensor) -> Tensor:
        """Tokens before their positions are added."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        return torch.cat((self.token.expand(len(x), -1, -1), x), 1)

    def forward(self, images: Tensor) -> Tensor:
        """Features, [batch, 17, width]."""
        found: Tensor = self.norm(self.blocks(self.embedded(images) + self.positions))
        return found


class LanguageModel(nn.Module):
    """A small causal language model with rotary positions.

    Args:
        width: Channels.
        depth: Blocks.
        heads: Heads.
        norm: Makes a norm of a width.
        activation: Makes the activation.
        rotary: Options of the rotary positions.
        fill: Score of hidden positions.
    """

    VOCABULARY = 97

    def __init__(
        self,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        *,
        norm: Make = RMSNorm,
        activation: Callable[[], nn.Module] = nn.SiLU,
        fill: float | None = None,
        **rotary: Any,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, width)
        self.blocks = nn.ModuleList(
            Block(
                width,
                norm,
                Attention(width, heads, rotary=Rotary(width // heads, **rotary), is_causal=True, bias=False, fill=fill),
                Gated(width, 2 * width, activation()),
            )
            for _ in range(depth)
        )
        self.norm, self.head = norm(width), nn.Linear(width, self.VOCABULARY, bias=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits, [batch, length, VOCABULARY]; the mask is False at padding on the left."""
        x = self.embedding(ids)
        positions = None if mask is None else (mask.cumsum(-1) - 1).clamp(min=0)[:, None]
        for block in self.blocks:
            x = block(x, positions, mask)
        found: Tensor = self.head(self.norm(x))
        return found

    def with_cache(self, ids: Tensor, first: int) -> Tensor:
        """Logits of the ids after the first ones, one by one, with keys and values kept."""
        caches: list[list[Tensor]] = [[] for _ in self.blocks]
        found = []
        for part in (ids[:, :first], *ids[:, first:].split(1, -1)):
            x = self.embedding(part)
            for block, cache in zip(self.blocks, caches, strict=True):
                before = cache[0].shape[-2] if cache else 0
                positions = torch.arange(before, before + part.shape[-1])
                q, k, v = block.attention.projected(block.norm1(x), positions)
                cache[:] = [torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)] if cache else [k, v]
                x = block.add(x, block.attention.attended(q, *cache))
                x = block.add(x, block.mlp(block.norm2(x)))
            found.append(self.head(self.norm(x)))
        return torch.cat(found[1:], 1)


class After(nn.Module):
    """A language model's logits after the first ids."""

    def __init__(self, network: LanguageModel, first: int) -> None:
        super().__init__()
        self.network, self.first = network, first

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, length - first, VOCABULARY]."""
        found: Tensor = self.network(ids)[:, self.first :]
        return found


def convolution(inner: int, outer: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    """A convolution, its batch norm and a ReLU."""
    return [nn.Conv2d(inner, outer, size, stride, size // 2, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]


class Bottleneck(nn.Module):
    """A residual block of three convolutions that halves the image."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        middle = outer // 4
        self.conv1, self.bn1 = nn.Conv2d(inner, middle, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv2, self.bn2 = nn.Conv2d(middle, middle, 3, 2, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv3, self.bn3 = nn.Conv2d(middle, outer, 1, bias=False), nn.BatchNorm2d(outer)
        self.short, self.norm = nn.Conv2d(inner, outer, 1, 2, bias=False), nn.BatchNorm2d(outer)

    def forward(self, x: Tensor) -> Tensor:
        """Applies it, [batch, outer, height / 2, width / 2]."""
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.norm(self.short(x)))


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, a norm over channels, and two pointwise layers."""

    def __init__(self, width: int, norm: Make) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), norm(width)
        self.up, self.down = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        return x + self.down(F.gelu(self.up(self.norm(self.depthwise(x)))))


def channel_norm(width: int, *, correction: int = 0) -> nn.Module:
    """A layer norm over the channels of an image."""
    return WrittenNorm(width, 1e-6, 1, correction=correction)


def convnext(width: int = 32, depth: int = 3, norm: Make = channel_norm) -> nn.Sequential:
    """A small ConvNeXt with ten classes."""
    stem = [nn.Conv2d(3, width, 4, 4), norm(width)]
    blocks = [ConvNeXtBlock(width, norm) for _ in range(depth)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def cnn(width: int = 32, depth: int = 4) -> nn.Sequential:
    """A plain CNN with batch norms and ten classes."""
    layers = convolution(3, width)
    for place in range(depth):
        layers += convolution(width, width, stride=2 if place in (1, 3) else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Calling(nn.Module):
    """A network that calls a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        """Calls it."""
        return self.function(*inputs)
