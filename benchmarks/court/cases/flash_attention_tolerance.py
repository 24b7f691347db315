"""Attention in half precision, by a kernel and by hand."""

from functools import partial
from pathlib import Path

import torch
from blocks import FusedAttention, VisionTransformer
from editing import replaced, settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/Dao-AILab/flash-attention/issues/37",
    kind="batches",
    question="The fused kernel fails atol 1e-3 against attention written out, in half precision: is it called wrongly?",
    truth=Rounding("sums are rounded to float16 in other places", "float16", "float16"),
    said="Both outputs are close, 1e-3 is too strict for float16; written-out attention errs as much from float32.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """A transformer in float16, written out and with torch's kernel."""
    network = settled(partial(VisionTransformer, attention=FusedAttention)())
    by_hand = replaced(network, FusedAttention, FusedAttention.split)
    return Sides(by_hand.half().eval(), network.half(), (torch.randn(2, 3, 32, 32).half(),))
