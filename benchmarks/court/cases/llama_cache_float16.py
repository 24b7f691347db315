"""A language model with and without a cache, in float16."""

from dataclasses import replace
from pathlib import Path

import torch
from cases import llama_cache_bfloat16
from truth import Rounding, Sides

CASE = replace(
    llama_cache_bfloat16.CASE,
    question="Logits with and without past keys differ by 0.0195 in float16: a bug of the cache?",
    truth=Rounding("other shapes of the same products", "float16", "float16"),
)


def build(folder: Path) -> Sides:
    """In float16."""
    return llama_cache_bfloat16.pair(torch.float16)
