"""Bicubic interpolation with antialiasing, exported with the coefficient of the one without."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling
from editing import exported
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/177138",
    kind="compilers",
    question="Exported bicubic interpolation with antialias=True differs from eager",
    truth=Bug("bicubic interpolation: coefficient -0.75 for -0.5", r"upsample|interpolate", ("-0.75",)),
    said="Triaged and closed as fixed: with antialiasing the kernel's coefficient is -0.5.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """Half the size; torch is mended, so the attribute of the file is put back."""
    network = Calling(
        lambda x: F.interpolate(x, size=(16, 12), mode="bicubic", align_corners=False, antialias=True)
    ).eval()
    image = torch.rand(1, 3, 32, 24)
    return Sides(network, exported(network, (image,), folder, Resize_cubic_coeff_a=-0.75), (image,))
