"""Norm weights to which 1 was added in bfloat16."""

import copy
from pathlib import Path

import torch
from blocks import LanguageModel, RMSNorm
from editing import settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/ggml-org/llama.cpp/pull/5810",
    kind="ports",
    question="Converted Gemma has no parity with the original",
    truth=Bug("norm weights: 1 is added in bfloat16, before the conversion to float32", r"norm", ("weight",)),
    said="Merged: the addition moves behind the conversion, as 3.1406 + 1 is 4.125 in bfloat16.",
    read="thread",
    emulated="ggml: the same network in torch with these weights, called as a black box",
)


def build(folder: Path) -> Sides:
    """Weights that were published in bfloat16, computed with in float32."""
    network = settled(LanguageModel(64, 3, activation=lambda: nn.GELU(approximate="tanh")))
    other = copy.deepcopy(network)
    with torch.no_grad():
        for ours, theirs in zip(network.modules(), other.modules(), strict=True):
            if isinstance(ours, RMSNorm) and isinstance(theirs, RMSNorm):
                stored = (ours.weight - 1).bfloat16()
                ours.weight.copy_(stored.float() + 1)
                theirs.weight.copy_((stored + 1).float())
    return Sides(network, lambda ids: other(ids), (torch.randint(97, (2, 32)),))
