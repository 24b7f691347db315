"""Time of a training: seconds of a step, measured before all runs, and the number of steps."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .data.images import ImageData, Loaders
from .training.recipe import Loss, Order, Recipe

_ROUNDS_TIMED, _SECONDS_TIMED = 9, 0.5  # the most rounds on a CPU; on a GPU as many as fill the seconds


def first_batch(data: ImageData | Loaders, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a training step."""
    if isinstance(data, Loaders):
        inputs, target = next(iter(data.train))
        return inputs, target
    batch = data.train.taken(slice(recipe.batch_size))
    return batch.numbers(), batch.labels


def steps(data: ImageData | Loaders, recipe: Recipe) -> int:
    """Steps of all epochs, by one process."""
    return recipe.epochs * len(data.train if isinstance(data, Loaders) else Order(len(data.train.labels), recipe))


def step_seconds(
    networks: Mapping[str, nn.Module], inputs: Tensor, target: Tensor, *, loss: Loss, device: torch.device
) -> dict[str, float]:
    """Median seconds of forward and backward in training mode; networks take turns, so all see the same load.

    On a CPU they are the processor's, which other programs take no part of; on a GPU those that pass until it is done.
    """
    is_gpu = device.type == "cuda"
    inputs, target = inputs.to(device), target.to(device)
    copies = {name: copy.deepcopy(network).to(device).train() for name, network in networks.items()}
    taken = {name: list[float]() for name in networks}
    while len(times := min(taken.values(), key=len)) < _ROUNDS_TIMED or (is_gpu and sum(times) < _SECONDS_TIMED):
        for name, network in copies.items():
            began = _clock(is_gpu=is_gpu)
            loss(network(inputs), target).backward()
            taken[name].append(_clock(is_gpu=is_gpu) - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def _clock(*, is_gpu: bool) -> float:
    if is_gpu:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()
