"""A deep CNN in ONNX Runtime."""

from pathlib import Path

import torch
from blocks import cnn
from editing import exported, settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/66528",
    kind="compilers",
    question="Keypoint R-CNN fails its export test by 0.002",
    truth=Rounding("other algorithms for convolutions, one after the other"),
    said="Small differences of convolutions add up; an exporter can do nothing, the test needs another tolerance.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """A CNN of 17 layers whose results are as large as coordinates."""
    images = torch.randn(1, 3, 64, 64)
    network = settled(cnn(32, 16), images)
    with torch.no_grad():
        network[-1].weight.mul_(1000)
    return Sides(network, exported(network, (images,), folder), (images,))
