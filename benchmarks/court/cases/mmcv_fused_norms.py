"""Batch norms that are folded into convolutions."""

import copy
from itertools import pairwise
from pathlib import Path

import torch
from blocks import cnn
from editing import settled
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/open-mmlab/mmcv/issues/747",
    kind="ports",
    question="A convolution with its norm folded in differs by 0.185 in the sum of all elements: what is the problem?",
    truth=Rounding("weights times a scale are rounded anew, and sums are of other numbers"),
    said="The relative error should be small, and a detector's precision stays; the asker's larger error was his own.",
    read="thread",
)


def build(folder: Path) -> Sides:
    """Seven convolutions."""
    images = torch.randn(2, 3, 32, 32)
    network = settled(cnn(32, 6), images)
    other = copy.deepcopy(network)
    for place, (layer, follower) in enumerate(pairwise(network)):
        if isinstance(layer, nn.Conv2d) and isinstance(follower, nn.BatchNorm2d):
            other[place], other[place + 1] = fuse_conv_bn_eval(layer, follower), nn.Identity()
    return Sides(network, other.eval(), (images,))
