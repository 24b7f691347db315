"""The same two layouts, with the permutation forgotten."""

from pathlib import Path

import torch
from blocks import LanguageModel, Rotary
from editing import black_box, edited, settled
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/ggml-org/llama.cpp/issues/3018",
    kind="ports",
    question="TinyLlama is gibberish once it is converted",
    truth=Bug("rotary positions: neighbours rotated where the weights are for halves", r"rotary|\.[qk]\b", ("permut",)),
    said="Fixed in the converter: the permutation of queries and keys was wrong for this model.",
    read="excerpt",
    emulated="ggml: the same network in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """A network that rotates halves, and an engine that rotates neighbours."""
    network = settled(LanguageModel(64, 3, 4))
    return Sides(network, black_box(edited(network, Rotary, is_interleaved=True)), (torch.randint(97, (2, 40)),))
