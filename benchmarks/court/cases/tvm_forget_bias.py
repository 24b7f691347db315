"""An LSTM whose forget gate gets its bias too late."""

import copy
from pathlib import Path

import torch
from editing import black_box
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/apache/tvm/pull/3410",
    kind="compilers",
    question="A recurrent network from TensorFlow predicts other words after conversion, though the test passes",
    truth=Bug("LSTM: the forget bias is added behind the sigmoid", r"lstm|cell", ("bias|add|sigmoid",)),
    said="Merged, with a test whose forget bias is 0.5; before, it was 0.",
    read="thread",
    emulated="TVM's front end: the same cell in torch, called as a black box",
)


class Cell(nn.Module):
    """A cell of an LSTM with a constant bias of the forget gate."""

    def __init__(self, inner: int, width: int) -> None:
        super().__init__()
        self.linear, self.forget_bias, self.is_bias_first = nn.Linear(inner + width, 4 * width), 0.5, True

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """One step: the hidden state and the cell's."""
        i, g, f, o = self.linear(torch.cat((x, h), -1)).chunk(4, -1)
        forget = torch.sigmoid(f + self.forget_bias) if self.is_bias_first else torch.sigmoid(f) + self.forget_bias
        c = forget * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Words(nn.Module):
    """A language model with one cell."""

    def __init__(self, words: int = 60, width: int = 32) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(words, width), Cell(width, width), nn.Linear(width, words)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, [batch, length, words]."""
        x = self.embedding(ids)
        h = c = torch.zeros_like(x[:, 0])
        found = []
        for step in x.unbind(1):
            h, c = self.cell(step, h, c)
            found.append(self.head(h))
        return torch.stack(found, 1)


def build(folder: Path) -> Sides:
    """Twelve words."""
    network = Words().eval()
    other = copy.deepcopy(network)
    other.cell.is_bias_first = False
    return Sides(network, black_box(other), (torch.randint(60, (2, 12)),))
