"""An interpolation to one pixel that the exporter writes with another rule for coordinates."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling
from editing import exported
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/183523",
    kind="compilers",
    question="An exported bilinear interpolation to one pixel gives another number",
    truth=Bug(
        "bilinear interpolation: pytorch_half_pixel for half_pixel", r"upsample|interpolate", ("pytorch_half_pixel",)
    ),
    said="Labelled a silent bug of the exporter, and closed as fixed.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """The thread's own call; torch is mended, so the attribute of the file is put back."""
    network = Calling(lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=False)).eval()
    image = torch.rand(1, 3, 10, 10)
    wrong = {"Resize_coordinate_transformation_mode": "pytorch_half_pixel"}
    return Sides(network, exported(network, (image,), folder, **wrong), (image,))
