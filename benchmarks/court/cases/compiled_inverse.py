"""The inverse of matrices that have none."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling
from torch import Tensor
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/150165",
    kind="compilers",
    question="Upsampling a matrix and inverting it gives different results when compiled",
    truth=Rounding("enlarged matrices are singular: their inverse is noise", is_amplified=True),
    said="The compiled result is nearer to float64 than the eager one.",
    read="for docs/same.md, which has this thread; not found again in the store",
    emulated="the compiler's interpolation: a product of matrices, called as a black box",
)


def build(folder: Path) -> Sides:
    """Three matrices of 32x32, enlarged to 64x64."""
    enlarge = F.interpolate(torch.eye(32)[None, None], size=(64, 32), mode="bilinear", align_corners=True)[0, 0]

    def other(x: Tensor) -> Tensor:
        found: Tensor = torch.linalg.inv(enlarge @ x @ enlarge.T)
        return found

    network = Calling(lambda x: torch.linalg.inv(F.interpolate(x, size=(64, 64), mode="bilinear", align_corners=True)))
    return Sides(network.eval(), other, (torch.randn(1, 3, 32, 32),))
