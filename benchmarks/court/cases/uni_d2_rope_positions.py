"""Rotary positions that are counted in bfloat16."""

from pathlib import Path

import torch
from blocks import LanguageModel, Rotary
from editing import edited, settled
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/nkalyanv99/UNI-D2/pull/6",
    kind="ports",
    question="A cast of the model casts its rotary cache, too: positions above 256 are no longer all different",
    truth=Bug("rotary positions: positions and frequencies in bfloat16 for float32", r"rotary", ("bfloat16",)),
    said="Merged: phases are built in float32, whatever the model's precision.",
    read="thread",
)


def build(folder: Path) -> Sides:
    """512 positions in bfloat16."""
    network = settled(LanguageModel(64, 2, 2)).bfloat16()
    other = edited(network, Rotary, frequencies_in=torch.bfloat16, positions_in=torch.bfloat16)
    return Sides(network, other, (torch.randint(97, (1, 512)),))
