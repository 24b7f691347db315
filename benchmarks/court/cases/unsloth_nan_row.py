"""A padded row that attends to nothing."""

from pathlib import Path

import torch
from blocks import Attention, LanguageModel
from editing import edited, settled
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/unslothai/unsloth/issues/9708",
    kind="batches",
    question="One of the prompts with padding on the left decodes to an empty text in float16",
    truth=Bug("attention: hidden scores of -inf, a row that sees nothing is NaN", r"attention", ("inf",)),
    said="A real defect, fixed by another pull request: such rows gave NaN.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """Two prompts, one of them with six tokens of padding."""
    network = settled(LanguageModel(64, 3)).half()
    mask = torch.arange(16) >= torch.tensor([[0], [6]])
    return Sides(network, edited(network, Attention, fill=float("-inf")), (torch.randint(97, (2, 16)), mask))
