"""A decoder that hears the padding behind what was said."""

from pathlib import Path

import torch
from blocks import Attention, FeedForward
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/transformers/pull/47946",
    kind="batches",
    question="Padding of the encoder's states changes what a GPT-2 with cross-attention says",
    truth=Bug("cross attention: the mask of the encoder's padding is dropped", r"cross", ("mask|fill",)),
    said="Merged: a line set the given mask to None since masks were rewritten; one more model had copied it.",
    read="excerpt",
)


class Cross(Attention):
    """Attention to an encoder's states."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.is_masked = True

    def forward(self, x: Tensor, states: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        """[batch, length, width]; the mask is [batch, states]."""
        q, k, v = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, states), (self.v, states))
        )
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if self.is_masked:
            scores = scores.masked_fill(~mask[:, None, None], torch.finfo(x.dtype).min)
        found: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        return found


class Layer(nn.Module):
    """Self attention, cross attention and a feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attention, self.cross = Attention(width, 4, is_causal=True), Cross(width, 4)
        self.mlp = FeedForward(width, 4 * width, nn.GELU(approximate="tanh"))

    def forward(self, x: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """[batch, length, width]."""
        x = x + self.attention(self.norm1(x))
        x = x + self.cross(self.norm2(x), states, mask)
        return x + self.mlp(self.norm3(x))


class Decoder(nn.Module):
    """Words from an encoder's states, as in captions and speech."""

    def __init__(self, words: int = 70, width: int = 64) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 12, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Logits, [batch, 12, words]."""
        x = self.embedding(ids) + self.positions
        for layer in self.layers:
            x = layer(x, states, mask)
        found: Tensor = self.head(self.norm(x))
        return found


def build(folder: Path) -> Sides:
    """Two recordings of 30 and 21 states."""
    network = settled(Decoder())
    inputs = torch.randint(70, (2, 12)), torch.randn(2, 30, 64), torch.arange(30) < torch.tensor([[30], [21]])
    return Sides(network, edited(network, Cross, is_masked=False), inputs)
