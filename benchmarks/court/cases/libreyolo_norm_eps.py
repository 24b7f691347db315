"""A detector that was built anew with another eps."""

from pathlib import Path

import torch
import torch.nn.functional as F
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/LibreYOLO/libreyolo/pull/700",
    kind="ports",
    question="The nano detector has 0.55 mAP in training and 0.36 after it is loaded; larger ones hardly change",
    truth=Bug("batch norm: eps 1e-5 for 1e-3", r"bn|norm", ("0.001", "1e-05")),
    said="Merged: eps was set after construction, and lost when the classes changed; depthwise variances are tiny.",
    read="excerpt",
)


class Separable(nn.Module):
    """A depthwise and a pointwise convolution, each with a batch norm."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.pointwise = nn.Conv2d(inner, outer, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(inner, eps=1e-3), nn.BatchNorm2d(outer, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outer, height / stride, width / stride]."""
        return F.silu(self.bn2(self.pointwise(F.silu(self.bn1(self.depthwise(x))))))


class Detector(nn.Module):
    """Boxes and scores at two strides."""

    def __init__(self, width: int = 24, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.stages = nn.ModuleList(Separable(width, width, 2) for _ in range(3))
        self.boxes = nn.ModuleList(nn.Conv2d(width, 4, 1) for _ in range(2))
        self.scores = nn.ModuleList(nn.Conv2d(width, classes, 1) for _ in range(2))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes [batch, 4, places] and scores [batch, classes, places]."""
        x, maps = F.silu(self.stem(images)), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        boxes = [head(x).flatten(2) for head, x in zip(self.boxes, maps[1:], strict=True)]
        scores = [head(x).flatten(2) for head, x in zip(self.scores, maps[1:], strict=True)]
        return torch.cat(boxes, 2).exp(), torch.cat(scores, 2).sigmoid()


def build(folder: Path) -> Sides:
    """Depthwise weights from 0.03 to 3 times the usual."""
    images = torch.randn(2, 3, 64, 64)
    network = settled(Detector(), images)
    return Sides(network, edited(network, nn.BatchNorm2d, eps=1e-5), (images,))
