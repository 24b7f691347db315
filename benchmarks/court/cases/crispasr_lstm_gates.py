"""An LSTM whose gates are read in another order than they were written in."""

import copy
from pathlib import Path

import torch
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/CrispStrobe/CrispASR/pull/106",
    kind="ports",
    question="Speaker diarization collapses to one speaker with weights from an ONNX file",
    truth=Bug("LSTM: gates read as i, f, g, o where they are i, o, f, c", r"lstm", ("gate",)),
    said="Merged: the runtime now reads ONNX's order; the text had looked reasonable all the time.",
    read="thread",
    emulated="ggml: an LSTM with permuted gates in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """Two directions over 20 frames."""
    network = nn.LSTM(24, 16, batch_first=True, bidirectional=True).eval()
    other = copy.deepcopy(network)
    with torch.no_grad():
        for weight in other.parameters():
            i, f, g, o = weight.chunk(4)
            weight.copy_(torch.cat((i, o, f, g)))  # as ONNX has them, read in torch's order
    return Sides(network, lambda x: other(x), (torch.randn(2, 20, 24),))
