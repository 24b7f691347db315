"""Interpolation with antialiasing, exported with another rule at the border."""

from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Calling
from editing import exported
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/183546",
    kind="compilers",
    question="F.interpolate(antialias=True) does not keep its values at the border when exported",
    truth=Bug("interpolation: exclude_outside 0 for 1", r"upsample|interpolate", ("exclude_outside",)),
    said="A mend, moved to onnxscript, drops samples outside and renormalises the rest, as eager does.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """The thread's ratio of sizes; torch is mended, so the attribute of the file is put back."""
    network = Calling(
        lambda x: F.interpolate(x, size=(8, 6), mode="bilinear", align_corners=False, antialias=True)
    ).eval()
    image = torch.rand(1, 3, 20, 15)
    return Sides(network, exported(network, (image,), folder, Resize_exclude_outside=0), (image,))
