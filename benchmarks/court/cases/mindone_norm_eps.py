"""A text encoder whose norms have their framework's default eps."""

from functools import partial
from pathlib import Path

import torch
from blocks import LanguageModel
from editing import black_box, edited, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/mindspore-lab/mindone/pull/225",
    kind="ports",
    question="OpenCLIP's text features in MindSpore are off by 4.8 %",
    truth=Bug("layer norm: eps 1e-7 for 1e-5", r"norm", ("eps", "1e-05", "1e-07")),
    said="Merged: with the reference's eps the difference falls from 4.8 % to 0.6 %.",
    read="thread",
    emulated="MindSpore: the same network in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """The first embeddings are small, as CLIP's are: variances of 1e-4, where an eps of 1e-5 counts."""
    network = settled(LanguageModel(64, 3, norm=partial(nn.LayerNorm, eps=1e-5), activation=nn.GELU))
    with torch.no_grad():
        network.embedding.weight.mul_(0.01)
    other = edited(network, nn.LayerNorm, eps=1e-7)
    return Sides(network, black_box(other), (torch.randint(97, (2, 24)),))
