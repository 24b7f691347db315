"""Weights that were cut to bfloat16 by a number library."""

import copy
from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import settled
from truth import Bug, Case, Sides
from units import cut

CASE = Case(
    thread="https://github.com/stillwater-sc/universal/issues/1133",
    kind="one-sided",
    question="0.26914 becomes 0.26758 in bfloat16, and 0.26953 with rounding to nearest: which is right?",
    truth=Bug("conversion of weights to bfloat16: cut, not rounded", r"patches|block|norm|linear|conv", ("weight",)),
    said="Confirmed and fixed: conversion now rounds to nearest even, as others' hardware does.",
    read="thread",
)


def build(folder: Path) -> Sides:
    """A transformer converted by torch, and by such a library."""
    wide = settled(VisionTransformer())
    network, other = copy.deepcopy(wide).bfloat16(), copy.deepcopy(wide).bfloat16()
    with torch.no_grad():
        for weight, source in zip(other.parameters(), wide.parameters(), strict=True):
            weight.copy_(cut(source))
    return Sides(network, other, (torch.randn(2, 3, 32, 32).bfloat16(),))
