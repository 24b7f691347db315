"""A language model with and without a cache, in bfloat16."""

from pathlib import Path

import torch
from blocks import After, LanguageModel
from editing import settled
from truth import Case, Rounding, Sides
from units import with_halves

CASE = Case(
    thread="https://github.com/huggingface/transformers/issues/25420",
    kind="batches",
    question="Logits with and without past keys differ by 0.125 in bfloat16: a bug of the cache?",
    truth=Rounding("other shapes of the same products", "bfloat16", "bfloat16"),
    said="The asker measured 1e-5 in float32, 0.0195 in float16 and 0.125 in bfloat16; closed as expected.",
    read="excerpt, and notes of an earlier reading",
    emulated="the GPU's kernels for one token: sums in two halves, each rounded; the CPU's give the same bits",
)


def pair(dtype: torch.dtype) -> Sides:
    """Eight logits behind 56 ids, in one pass and one by one."""
    network = settled(LanguageModel(128, 4)).to(dtype)
    return Sides(
        After(network, 56).eval(), with_halves(lambda ids: network.with_cache(ids, 56)), (torch.randint(97, (1, 64)),)
    )


def build(folder: Path) -> Sides:
    """In bfloat16."""
    return pair(torch.bfloat16)
