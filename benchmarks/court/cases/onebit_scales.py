"""Scales of quantised weights that were cut to 16 bits."""

import copy
from pathlib import Path

import torch
from blocks import LanguageModel
from editing import settled
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import cut, steps

CASE = Case(
    thread="https://github.com/1bit-MONSTER/1bit-MONSTER/issues/640",
    kind="one-sided",
    question="Does it matter that a converter shifts 16 bits out of every scale?",
    truth=Bug("scales of weights: cut to bfloat16, not rounded", r"attention|mlp|head|linear", ("weight",)),
    said="Fixed, as scales were always a little too small: under 0.1 % of perplexity.",
    read="thread",
    emulated="the engine: a network in torch with weights of these scales, called as a black box",
)
GROUP = 32


def _dequantised(weight: Tensor, *, is_cut: bool) -> Tensor:
    groups = weight.unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 7
    stored = cut(scale) if is_cut else scale.bfloat16()
    return (steps(groups, scale, -8, 7) * stored.float()).flatten(-2)


def build(folder: Path) -> Sides:
    """4-bit weights in groups of 32; both sides compute in float32."""
    network = settled(LanguageModel(64, 3))
    other = copy.deepcopy(network)
    with torch.no_grad():
        for ours, theirs in zip(network.modules(), other.modules(), strict=True):
            if isinstance(ours, nn.Linear) and isinstance(theirs, nn.Linear):
                wide = ours.weight.clone()
                ours.weight.copy_(_dequantised(wide, is_cut=False))
                theirs.weight.copy_(_dequantised(wide, is_cut=True))
    return Sides(network, lambda ids: other(ids), (torch.randint(97, (1, 32)),))
