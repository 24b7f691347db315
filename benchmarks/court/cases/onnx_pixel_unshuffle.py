"""Pixels that become channels in another order."""

from pathlib import Path

import onnx
import torch
from blocks import convolution
from editing import exported, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/microsoft/onnxscript/issues/2891",
    kind="compilers",
    question="PixelUnshuffle is exported as SpaceToDepth: is that the same?",
    truth=Bug(
        "pixel unshuffle: channels inside of pixels, for pixels inside of channels",
        r"unshuffle|(?i:space_?to_?depth)",
        ("order|unshuffle|spacetodepth|space_to_depth|permut",),
    ),
    said="Open; the report shows that PixelShuffle gets a mode for this, and SpaceToDepth has none.",
    read="excerpt",
    emulated="the old exporter: today's writes three nodes, for which the file here has SpaceToDepth",
)


class Restorer(nn.Module):
    """A network of images that works on halved ones."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.unshuffle = nn.Sequential(*convolution(3, 8)), nn.PixelUnshuffle(2)
        self.body, self.shuffle = (
            nn.Sequential(*convolution(32, 32), nn.Conv2d(32, 12, 3, padding=1)),
            nn.PixelShuffle(2),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width]."""
        found: torch.Tensor = images + self.shuffle(self.body(self.unshuffle(self.stem(images))))
        return found


def build(folder: Path) -> Sides:
    """A restorer of images."""
    images = torch.randn(1, 3, 16, 24)
    network = settled(Restorer(), images)
    path = exported(network, (images,), folder)
    model = onnx.load(path)
    nodes = list(model.graph.node)
    place = next(place for place, node in enumerate(nodes) if node.op_type == "Reshape")
    kinds = [node.op_type for node in nodes[place : place + 3]]
    if kinds != ["Reshape", "Transpose", "Reshape"]:
        raise LookupError(f"the exporter writes {kinds}")
    node = onnx.helper.make_node(
        "SpaceToDepth", nodes[place].input[:1], nodes[place + 2].output, name="space_to_depth", blocksize=2
    )
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:place], node, *nodes[place + 3 :]])
    onnx.save(model, path)
    return Sides(network, path, (images,))
