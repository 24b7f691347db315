"""A delegate that leaves out the factor of an addition."""

from pathlib import Path

import torch
from blocks import Calling
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/executorch/issues/11683",
    kind="ports",
    question="A delegated addition gives other numbers",
    truth=Bug("add: alpha 1 for 10", r"add", ("alpha", "10")),
    said="Fixed: such additions are no longer delegated.",
    read="thread",
    emulated="XNNPACK: an addition without alpha, called as a black box",
)


def build(folder: Path) -> Sides:
    """The thread's own function."""
    network = Calling(lambda x, y: torch.add(x, y, alpha=10)).eval()
    return Sides(network, lambda x, y: x + y, (torch.randn(10), torch.randn(10)))
