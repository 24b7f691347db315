"""A llama with the eps of another llama."""

from functools import partial
from pathlib import Path

import torch
from blocks import LanguageModel, RMSNorm
from editing import black_box, edited, settled
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/huggingface/candle/pull/271",
    kind="ports",
    question="Logits do not line up with transformers'",
    truth=Bug("root mean square norm: eps 1e-5 for 1e-6", r"norm", ("eps", "1e-06", "1e-05")),
    said="Merged: after this was fixed, logits line up in float32 on the CPU.",
    read="thread",
    emulated="candle (Rust): the same network in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """Embeddings of small variance, as llama's are."""
    network = settled(LanguageModel(64, 4, norm=partial(RMSNorm, eps=1e-6)))
    with torch.no_grad():
        network.embedding.weight.mul_(0.02)
    return Sides(network, black_box(edited(network, RMSNorm, eps=1e-5)), (torch.randint(97, (2, 32)),))
