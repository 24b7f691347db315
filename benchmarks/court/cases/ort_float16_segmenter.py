"""A converted network whose weights and activations are in half precision."""

import copy
from pathlib import Path

import torch
from cases.flaggems_nearest_exact import Segmenter
from editing import settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/microsoft/onnxruntime/issues/21345",
    kind="precision",
    question="A network converted to float16 differs by 0.004 where it is not NaN: how much is acceptable?",
    truth=Rounding("weights and activations are stored in float16", "float16"),
    said="In a maintainer's experience, 0.004 between both precisions is acceptable; NaN had another reason.",
    read="excerpt",
    emulated="the converted file: the network in float16 in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """A segmenter, where the thread's network is unknown."""
    images = torch.randn(2, 3, 20, 26)
    network = settled(Segmenter(24), images)
    half = copy.deepcopy(network).half()
    return Sides(network, lambda x: half(x.half()).float(), (images,))
