"""BERT with its eps after the embeddings, and another in the encoder."""

from pathlib import Path

import torch
from blocks import Attention, FeedForward
from editing import black_box, edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/keras-team/keras-hub/issues/642",
    kind="ports",
    question="Is BERT's eps right in all layers?",
    truth=Bug("layer norms of the encoder: eps 1e-5 for 1e-12", r"layers", ("eps", "1e-12", "1e-05")),
    said="Labelled a bug and fixed, there and in all other backbones.",
    read="thread",
    emulated="Keras: the same network in torch, called as a black box",
)


class Layer(nn.Module):
    """A layer with norms behind, as BERT has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(width, 4), FeedForward(width, 4 * width, nn.GELU())
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x: Tensor) -> Tensor:
        """Applies it."""
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    """Embeddings, their norm, and layers."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(97, width), nn.Embedding(32, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))

    def forward(self, ids: Tensor) -> Tensor:
        """Features, [batch, length, width]."""
        return self.layers(self.norm(self.words(ids) + self.places.weight[: ids.shape[1]]))


def build(folder: Path) -> Sides:
    """Two sentences of 20 tokens."""
    network = settled(Bert())
    other = edited(network, nn.LayerNorm, where="layers", eps=1e-5)
    return Sides(network, black_box(other), (torch.randint(97, (2, 20)),))
