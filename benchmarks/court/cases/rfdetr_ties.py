"""Detections with the same score, in another order."""

from pathlib import Path

import torch
from blocks import convolution
from editing import edited, settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/roboflow/rf-detr/pull/1353",
    kind="compilers",
    question="The first detection is another box since the selection sorts: are detections still right?",
    truth=Rounding("scores that round to the same number have no order of their own", is_amplified=True),
    said="Merged: the same detections and scores, only ties are ordered otherwise, which was never promised.",
    read="excerpt",
)


class Select(nn.Module):
    """The best detections."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sorted = True

    def forward(self, scores: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [batch, 20] and boxes [batch, 20, 4]."""
        if self.is_sorted:
            chosen = scores.argsort(dim=-1, descending=True, stable=True)[:, :20]
        else:
            chosen = scores.topk(20).indices
        return scores.gather(1, chosen), boxes.gather(1, chosen[..., None].expand(-1, -1, 4))


class Detector(nn.Module):
    """Scores and boxes of all places, and the best of them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(*convolution(3, width), *convolution(width, width, 3, 2))
        self.score, self.box, self.select = nn.Conv2d(width, 1, 1), nn.Conv2d(width, 4, 1), Select()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The best scores and their boxes."""
        x = self.body(images)
        scores, boxes = self.score(x).flatten(1).sigmoid(), self.box(x).flatten(2).transpose(1, 2).sigmoid()
        found: tuple[Tensor, Tensor] = self.select(scores, boxes)
        return found


def build(folder: Path) -> Sides:
    """Five and six detections are sure: their scores are 1 in float32."""
    images = torch.randn(2, 3, 24, 24)
    network = settled(Detector(), images)
    with torch.no_grad():
        network.score.weight.mul_(24)
    return Sides(network, edited(network, Select, is_sorted=False), (images,))
