"""Rotary positions with another base."""

from pathlib import Path

import torch
from blocks import LanguageModel, Rotary
from editing import edited, settled
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/candle/pull/3746",
    kind="ports",
    question="Yi's configuration holds a base for its rotary positions, which no line of the port reads",
    truth=Bug("rotary positions: base 10000 for 5000000", r"rotary", ("10000",)),
    said="Open; the report shows that all other models of the library read theirs, and this one writes 10000.",
    read="excerpt",
    emulated="candle (Rust): the same network in torch with this base",
)


def build(folder: Path) -> Sides:
    """64 positions."""
    network = settled(LanguageModel(64, 2, base=5e6))
    return Sides(network, edited(network, Rotary, base=1e4), (torch.randint(97, (1, 64)),))
