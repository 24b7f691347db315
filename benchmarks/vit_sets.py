"""The three sets of ``vits.py``: shifted digits, textures and solar cells, each divided by a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from cells import GRADES, macro_f1, pictures, weighted
from cells import parts as parts_of_cells
from torch import Tensor
from vit_trunk import Shape

from conv2attn.learn.data.pictures import read_picture

TEXTURES = "brick", "grass", "gravel", "hubble_deep_field", "ihc", "moon", "page", "text"
_CROP, _CROPS = 32, {"train": 50, "validation": 50, "test": 100}
_WHERE = {"train": (0.0, 0.55), "validation": (0.55, 0.75), "test": (0.75, 1.0)}


class Part(NamedTuple):
    """Images [count, 1, rows, columns] and labels [count]."""

    images: Tensor
    labels: Tensor


Parts = tuple[Part, Part, Part]
"""To train with, to choose with, to test with."""


@lru_cache(maxsize=2)
def shifted_digits(seed: int) -> Parts:
    """Digits of 8x8 anywhere on 16x16; 400 of 600 are drawn to train with."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images, labels = torch.tensor(found.images / 16, dtype=torch.float32)[order], torch.tensor(found.target)[order]
    drawn = torch.randperm(600, generator=torch.Generator().manual_seed(seed))[:400]
    kinds = (drawn, 100 + seed), (torch.arange(600, 1000), 98), (torch.arange(1000, len(labels)), 99)
    train, validation, test = (Part(_pasted(images[which], key), labels[which]) for which, key in kinds)
    return train, validation, test


def _pasted(images: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(len(images), 1, 16, 16)
    for image, (row, column) in enumerate(torch.randint(0, 9, (len(images), 2), generator=generator).tolist()):
        found[image, 0, row : row + 8, column : column + 8] = images[image]
    return found


@lru_cache(maxsize=2)
def textures(seed: int) -> Parts:
    """Crops of textures; those to choose and to test with are the same for all seeds."""
    train, validation, test = (_crops(part, 100 + seed if part == "train" else 98) for part in _WHERE)
    return train, validation, test


def _crops(part: str, seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name in TEXTURES:
        image = texture(name, part)
        ends = (size - _CROP + 1 for size in image.shape)
        places = torch.stack([torch.randint(end, (_CROPS[part],), generator=generator) for end in ends], 1)
        found += [image[row : row + _CROP, column : column + _CROP] for row, column in places.tolist()]
    crops = torch.stack(found).unsqueeze(1)
    deviations, means = torch.std_mean(crops, (1, 2, 3), keepdim=True)
    return Part(
        (crops - means) / deviations.clamp(min=1e-3), torch.arange(len(TEXTURES)).repeat_interleave(_CROPS[part])
    )


def texture(name: str, part: str) -> Tensor:
    """A part of a picture, [rows, columns]; parts lie beside each other."""
    image = _picture(name)
    low, high = (int(share * image.shape[1]) for share in _WHERE[part])
    return image[:, low:high]


@cache
def _picture(name: str) -> Tensor:
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise SystemExit("the textures are scikit-image's: pip install scikit-image")
    return read_picture(next((Path(spec.origin).parent / "data").glob(f"{name}.*")), 1)[0]


@lru_cache(maxsize=2)
def cells(seed: int) -> Parts:
    """Solar cells and their grades."""
    train, validation, test = (Part(part.pictures(), part.labels) for part in parts_of_cells(*pictures(48), seed))
    return train, validation, test


def accuracy(called: Tensor, labels: Tensor) -> float:
    """The share of labels that were called so."""
    return float((called == labels).double().mean())


@dataclass(frozen=True)
class Task:
    """A set.

    Attributes:
        title: In the tables.
        shape: Of its images.
        parts: Its images, by seed.
        epochs: Passes over the images to train with; digits may get more.
        loss: Of scores and labels.
        score: Of called classes and labels, from 0 to 1.
        measure: Name of the score.
    """

    title: str
    shape: Shape
    parts: Callable[[int], Parts]
    epochs: int
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    score: Callable[[Tensor, Tensor], float] = accuracy
    measure: str = "accuracy"


TASKS = {
    "digits": Task("shifted digits, 400 images", Shape(2, 10), shifted_digits, 50),
    "textures": Task("textures, 400 crops", Shape(4, len(TEXTURES)), textures, 40),
    "cells": Task("solar cells, 1,562 images", Shape(6, len(GRADES)), cells, 10, weighted, macro_f1, "macro-F1"),
}
