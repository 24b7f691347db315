"""An interpolation that chooses other pixels when it is compiled."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling, convolution
from editing import settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/198201",
    kind="compilers",
    question="Nearest interpolation by 1.3 of three rows, which stay three, differs when compiled",
    truth=Bug(
        "nearest interpolation: rows resampled by 1.3 though their number stays", r"upsample|nearest", ("scale",)
    ),
    said="Open, labelled a silent error of the compiler: eager copies an axis whose size stays.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """The thread's sizes, behind a convolution; the compiler's decompositions, without its code generator."""
    images = torch.randn(1, 3, 3, 4)
    resize = Calling(lambda x: F.interpolate(x, scale_factor=(1.3, 1.5), mode="nearest"))
    network = settled(nn.Sequential(*convolution(3, 8), resize, nn.Conv2d(8, 4, 1)), images)
    return Sides(network, torch.compile(network, backend="aot_eager_decomp_partition"), (images,))
