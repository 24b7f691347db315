"""Experiments that are small enough for tests."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import torch

from conv2attn.learn.data.images import ImageData, Split
from conv2attn.learn.experiment.folder import Experiment
from conv2attn.learn.experiment.recipes import SMALL, Setting
from conv2attn.learn.experiment.run import run_experiment

TINY = replace(
    SMALL,
    sizes=replace(SMALL.sizes, depth=2, num_heads=3, hidden=8, feed_forward=8, key_dim=4),
    width=8,  # with fewer channels PyTorch 2.13 writes beyond the gradient of a strided 1 x 1 convolution
    recipe=replace(SMALL.recipe, epochs=2, batch_size=8),
)


@functools.cache
def stripes() -> ImageData:
    """Images of 8 x 6 pixels whose class is whether the stripes are rows or columns."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (24, 10, 12):
        labels = torch.arange(count) % 2
        lines = torch.where(torch.rand(count, 1, 8, 6, generator=generator) < 0.1, -1.0, 1.0)
        rows, columns = torch.arange(8).view(8, 1) % 2, torch.arange(6).view(1, 6) % 2
        pattern = torch.where(labels.view(-1, 1, 1, 1) == 0, rows * 2.0 - 1, columns * 2.0 - 1)
        parts.append(Split(lines * pattern, labels))
    train, validation, test = parts
    return ImageData("stripes", ("rows", "columns"), train, validation, test)


def tiny_experiment(*encodings: str, seeds: int = 1, setting: Setting = TINY) -> Experiment:
    """An experiment on stripes."""
    return Experiment("stripes", (1, 8, 6, 2), encodings, seeds, setting)


def run_tiny(folder: Path, *encodings: str, seeds: int = 1, setting: Setting = TINY) -> Experiment:
    """Runs an experiment on stripes in a folder."""
    experiment = tiny_experiment(*encodings, seeds=seeds, setting=setting)
    run_experiment(experiment, stripes(), folder)
    return experiment
