"""A ConvNeXt whose outputs depend on the batch."""

from pathlib import Path

import torch
from blocks import convnext
from editing import settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/huggingface/pytorch-image-models/issues/2244",
    kind="batches",
    question="convnext_tiny gives -1.71834683 in a batch and -1.71835089 alone: a bug?",
    truth=Rounding("kernels depend on the batch, and sum in another order"),
    said="Closed; of the same question in pytorch#58128: about 1e-6 an operation, which cannot be changed.",
    read="excerpt, and notes of an earlier reading",
)


def build(folder: Path) -> Sides:
    """Four images, at once and one by one."""
    network = settled(convnext(64, 4))
    return Sides(network, lambda x: torch.cat([network(one) for one in x.split(1)]), (torch.randn(4, 3, 64, 64),))
