"""How good a network is on labelled images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ...convert.outputs import class_scores
from ..data.images import Split

_BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """How good a network is.

    Attributes:
        loss: Mean cross entropy.
        accuracy: Share of images whose class has the highest score.
    """

    loss: float
    accuracy: float


@contextmanager
def in_eval_mode(network: nn.Module) -> Iterator[None]:
    """While it lasts, every module is in eval mode; then each is in the mode that it had."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@torch.no_grad()
def evaluate(network: nn.Module, split: Split) -> Evaluation:
    """Runs a network in eval mode on all images, in the precision and on the device of its weights."""
    weight = next(network.parameters())
    loss, right = 0.0, 0
    with in_eval_mode(network):
        for batch in split.batches(_BATCH):
            scores = class_scores(network(batch.numbers().to(weight))).float()
            truth = batch.labels.to(scores.device)
            loss += float(F.cross_entropy(scores, truth, reduction="sum"))
            right += int((scores.argmax(1) == truth).sum())
    return Evaluation(loss / len(split.labels), right / len(split.labels))
