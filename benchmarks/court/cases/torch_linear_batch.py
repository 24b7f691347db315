"""Two linear layers, of all rows and of one."""

from pathlib import Path

import torch
from torch import nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/129111",
    kind="batches",
    question="A row's result depends on the number of rows, and on the GPU it does not: more than rounding?",
    truth=Rounding("kernels depend on the number of rows"),
    said="Closed as expected: other batch sizes may give slightly different results.",
    read="thread",
)


def build(folder: Path) -> Sides:
    """64 rows, at once and one by one."""
    network = nn.Sequential(nn.Linear(768, 1024), nn.GELU(), nn.Linear(1024, 256)).eval()
    return Sides(network, lambda x: torch.cat([network(row) for row in x.split(1)]), (torch.randn(64, 768),))
