"""A language model whose own head was not loaded."""

import copy
from pathlib import Path

import torch
from blocks import LanguageModel
from editing import settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pegainfer-project/pegainfer/pull/544",
    kind="ports",
    question="Qwen3.5 with a head of its own gives the logits of another model: which weights are used?",
    truth=Bug("head: the embedding's weights for its own", r"head", ("weight",)),
    said="Reviewed in all three places that use the head: it is now loaded, unless the file says that it is tied.",
    read="excerpt",
    emulated="pegainfer (Rust): the same network in torch with tied weights",
)


def build(folder: Path) -> Sides:
    """The embedding has the head's size, so that logits look the same."""
    network = LanguageModel(64, 2)
    with torch.no_grad():
        network.embedding.weight.mul_(64**-0.5)
    network = settled(network)
    other = copy.deepcopy(network)
    other.head.weight = nn.Parameter(other.embedding.weight.detach().clone())
    return Sides(network, other, (torch.randint(97, (1, 24)),))
