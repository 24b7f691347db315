"""Halves that are always rounded away from zero."""

from pathlib import Path

import torch
from blocks import FeedForward
from editing import black_box, edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/tenstorrent/tt-metal/issues/56525",
    kind="one-sided",
    question="14.5 % of a normal tensor in bfloat16 is quantised to another integer, never by more than one",
    truth=Bug(
        "quantisation: halves are rounded away from zero, not to even", r"stored|quant|round", ("half|tie|even|bias",)
    ),
    said="Open; the report quotes the chip's manual against the name of its constant, and has a mend that it measured.",
    read="excerpt",
    emulated="the chip: the same network in torch with such halves, called as a black box",
)


class Stored(nn.Module):
    """Activations on steps of 1/8."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.is_even = 0.125, True

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        y = x / self.scale
        steps = y.round() if self.is_even else y.sign() * (y.abs() + 0.5).floor()
        return steps.clamp(-128, 127) * self.scale


class Layer(nn.Module):
    """A feed-forward layer beside the stream, whose inputs are stored."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stored, self.mlp = Stored(), FeedForward(width, 2 * width, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width]."""
        return x + self.mlp(self.stored(x))


def build(folder: Path) -> Sides:
    """Six layers in bfloat16."""
    network = settled(nn.Sequential(*(Layer(96) for _ in range(6)))).bfloat16()
    other = edited(network, Stored, is_even=False)
    return Sides(network, black_box(other), (2 * torch.randn(8, 96).bfloat16(),))
