"""An engine that maps one activation to another."""

from pathlib import Path

import torch
from blocks import cnn
from editing import black_box, replaced, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/onnxruntime/onnxruntime-qnn/pull/392",
    kind="ports",
    question="MobileNetV3 has no accuracy on the chip",
    truth=Bug("activation: HardSigmoid for HardSwish", r"hardswish|\b[258]\b", ("hardsigmoid", "hardswish")),
    said="Merged: the operation's name meant HardSigmoid there; accuracy is back at 67.3 %.",
    read="thread",
    emulated="QNN: the same network in torch, called as a black box",
)


def build(folder: Path) -> Sides:
    """A CNN with HardSwish."""
    images = torch.randn(2, 3, 32, 32)
    network = settled(replaced(cnn(), nn.ReLU, lambda _: nn.Hardswish()), images)
    other = replaced(network, nn.Hardswish, lambda _: nn.Hardsigmoid())
    return Sides(network, black_box(other), (images,))
