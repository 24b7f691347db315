"""Sums of probabilities, rounded down."""

from pathlib import Path

import torch
from blocks import Calling
from truth import Case, Open, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/189787",
    kind="compilers",
    question="A compiler writes 1 for the sum of a softmax; its floor was 0 or 1: whose error is that?",
    truth=Open("labelled a discrepancy of numbers; whether a compiler may fold this sum was not said"),
    said="Open; the reporter finds both sums within rounding, and the floor an amplifier.",
    read="excerpt",
    emulated="the compiler: ones, called as a black box",
)


def build(folder: Path) -> Sides:
    """The thread's size."""
    network = Calling(lambda x: x.softmax(-1).sum(-1).floor()).eval()
    return Sides(network, lambda x: torch.ones_like(x[..., 0]), (torch.randn(43, 59),))
