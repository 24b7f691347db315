"""Evaluation of a network on images with labels, or on pairs of inputs and targets of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...convert.outputs import class_scores
from ...convert.subclasses.computed import in_eval_mode
from ..data.images import Pairs, Split

_BATCH = 32  # content attention over all pairs takes memory in proportion
Loss = Callable[[Any, Tensor], Tensor]
"""From what a network returns and what that is to be, to one number, the mean over a batch."""


def cross_entropy(output: Any, labels: Tensor) -> Tensor:
    """The mean cross entropy of class scores: the loss, where none is given."""
    return F.cross_entropy(class_scores(output), labels)


@torch.no_grad()
def evaluate(network: nn.Module, part: Split | Pairs, loss: Loss | None = None) -> dict[str, float]:
    """Runs a network in eval mode on all images, in the precision and on the device of its weights.

    Args:
        network: The network.
        part: Images with labels, or batches of inputs and targets.
        loss: Of an output and its target; None means the cross entropy of class scores.

    Returns:
        The mean "loss"; without a loss of one's own also "accuracy", the share of images whose class scores highest.
    """
    weight = next(network.parameters())
    total, right, count = 0.0, 0, 0
    if isinstance(part, Split):
        part = ((batch.numbers(), batch.labels) for batch in part.batches(_BATCH))
    with in_eval_mode(network):
        for inputs, target in part:
            target = target.to(weight.device)
            output = network(inputs.to(weight))
            if loss is None:
                output = class_scores(output).float()
                right += int((output.argmax(1) == target).sum())
            total += float((loss or cross_entropy)(output, target)) * len(target)
            count += len(target)
    return {"loss": total / count} | ({"accuracy": right / count} if loss is None else {})


def accuracy(network: nn.Module, split: Split) -> float:
    """The share of images whose class has the highest score; the network is run as ``evaluate`` does."""
    return evaluate(network, split)["accuracy"]
