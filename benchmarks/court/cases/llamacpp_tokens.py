"""Tokens that are sent one at a time."""

from pathlib import Path

import torch
from blocks import LanguageModel
from cases.llama_cache_bfloat16 import After
from editing import settled
from truth import Case, Rounding, Sides
from units import with_halves

CASE = Case(
    thread="https://github.com/ggml-org/llama.cpp/issues/4479",
    kind="batches",
    question="Tokens one at a time and all at once have other logits on the GPU: is the cache wrong?",
    truth=Rounding("kernels for one row and for several round otherwise", "float16", "float16"),
    said="Closed as stale; a developer expects it, and computes that probabilities are essentially the same.",
    read="excerpt",
    emulated="the GPU's kernels for one row: sums in two halves, each rounded; the CPU's give the same bits",
)


def build(folder: Path) -> Sides:
    """In float16, from the second token on."""
    network = settled(LanguageModel(96, 3)).half()
    return Sides(
        After(network, 1).eval(), with_halves(lambda ids: network.with_cache(ids, 1)), (torch.randint(97, (1, 20)),)
    )
