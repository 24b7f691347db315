"""One convolution of a large image."""

from pathlib import Path

import torch
from editing import exported
from torch import nn
from truth import Case, Open, Sides

CASE = Case(
    thread="https://github.com/microsoft/onnxruntime/issues/18946",
    kind="compilers",
    question="19 of 6.5 million elements of a convolution fail rtol 1e-5, by 66 % at most: a mismatch?",
    truth=Open("nobody answered; the asker found torch nearer to a sum by hand"),
    said="Open since December 2023 without an answer.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """One layer of 3x3 on pixels from 0 to 255."""
    network = nn.Sequential(nn.Conv2d(3, 16, 3, bias=False)).eval()
    image = 255 * torch.rand(1, 3, 128, 128)
    return Sides(network, exported(network, (image,), folder), (image,))
