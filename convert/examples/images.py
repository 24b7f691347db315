"""Draws the data set from a seed: eight classes of shapes and gratings.

Every image is one *coverage* map in [0, 1] (how much of each pixel the figure covers) between two random
colours, plus noise. Position, size, tilt, colours and contrast are random; the class is the figure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from ..errors import ConversionError

Array = npt.NDArray[np.float64]

IMAGE_SIZE = (24, 24)
"""Rows and columns of every image."""

HELD_OUT_SEED = 191_103_584
"""Seed of the images that no network was trained on: ``draw_images(1000, seed=HELD_OUT_SEED)``."""

_SHIFT = 4.0  # pixels off the middle; 2 * _SHIFT >= the largest size, so gratings take every phase
_SIZES = (4.5, 8.0)  # pixels: the radius of a shape, the period of a grating
_TILT = 0.3  # radians
_NOISE = 0.4  # standard deviation; enough that the networks make some mistakes


def draw_images(count: int, *, seed: int, size: tuple[int, int] = IMAGE_SIZE) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws ``count`` images; the same seed gives the same images.

    Args:
        count: Number of images. The classes differ in number by at most one.
        seed: Seed of the numpy generator that decides everything.
        size: Rows and columns; figures stay as large, and have more around them.

    Returns:
        images: float32 tensor [count, 3, rows, cols], centred on 0, mostly within -1 to 1.
        labels: int64 tensor [count], indices into `CLASSES`.

    Raises:
        ConversionError: The count is not positive.
    """
    if count < 1:
        raise ConversionError(f"draw_images was asked for {count} images; the count must be at least 1")
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(CLASSES))
    coverage = _draw_coverage(rng, labels, size)
    images = _colour(rng, coverage)
    return torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def _draw_coverage(rng: np.random.Generator, labels: npt.NDArray[np.int_], size: tuple[int, int]) -> Array:
    """Draws each label's figure at a random place: [count] -> [count, rows, cols]."""
    rows, cols = _random_coordinates(rng, len(labels), size)
    sizes = rng.uniform(*_SIZES, size=(len(labels), 1, 1))
    coverage = np.empty_like(rows)
    for index, figure in enumerate(_FIGURES.values()):
        chosen = labels == index
        coverage[chosen] = figure(rows[chosen], cols[chosen], sizes[chosen])
    return coverage


def _random_coordinates(rng: np.random.Generator, count: int, size: tuple[int, int]) -> tuple[Array, Array]:
    """Gives every pixel its coordinates about a shifted and tilted centre, twice [count, rows, cols]."""
    height, width = size
    shift = rng.uniform(-_SHIFT, _SHIFT, size=(2, count, 1, 1))
    rows = np.arange(height)[:, None] - (height - 1) / 2 - shift[0]
    cols = np.arange(width)[None, :] - (width - 1) / 2 - shift[1]
    tilt = rng.uniform(-_TILT, _TILT, size=(count, 1, 1))
    return np.cos(tilt) * rows - np.sin(tilt) * cols, np.sin(tilt) * rows + np.cos(tilt) * cols


def _colour(rng: np.random.Generator, coverage: Array) -> Array:
    """Blends two colours by coverage and adds noise: [count, rows, cols] -> [count, 3, rows, cols].

    Figure and background lie ``contrast`` above or below a middle colour, per channel and at random.
    """
    per_channel = (len(coverage), 3, 1, 1)
    middle = rng.uniform(-0.3, 0.3, size=per_channel)
    contrast = rng.uniform(0.35, 0.7, size=per_channel) * rng.choice((-1.0, 1.0), size=per_channel)
    noise = _NOISE * rng.standard_normal((len(coverage), 3, *coverage.shape[1:]))
    image: Array = middle + contrast * (2 * coverage[:, None] - 1) + noise
    return image


def _inside(distance: Array) -> Array:
    """Turns a signed distance to an outline in pixels (negative inside) into an antialiased coverage."""
    return np.clip(0.5 - distance, 0.0, 1.0)


def _disc(rows: Array, cols: Array, size: Array) -> Array:
    return _inside(np.hypot(rows, cols) - size)


def _ring(rows: Array, cols: Array, size: Array) -> Array:
    return _inside(np.abs(np.hypot(rows, cols) - 0.8 * size) - 0.2 * size)


def _square(rows: Array, cols: Array, size: Array) -> Array:
    return _inside(np.maximum(np.abs(rows), np.abs(cols)) - 0.85 * size)


def _triangle(rows: Array, cols: Array, size: Array) -> Array:
    """An equilateral triangle, tip up: each side is ``size / 2`` from the centre."""
    slopes = np.sqrt(0.75) * np.abs(cols) - 0.5 * rows
    return _inside(np.maximum(rows, slopes) - 0.5 * size)


def _cross(rows: Array, cols: Array, size: Array) -> Array:
    near, far = np.minimum(np.abs(rows), np.abs(cols)), np.maximum(np.abs(rows), np.abs(cols))
    return _inside(np.maximum(far - size, near - 0.3 * size))


def _wave(position: Array, period: Array) -> Array:
    return 0.5 + 0.5 * np.sin(2 * np.pi * position / period)


def _horizontal_grating(rows: Array, cols: Array, size: Array) -> Array:
    return _wave(rows, size)


def _vertical_grating(rows: Array, cols: Array, size: Array) -> Array:
    return _wave(cols, size)


def _diagonal_grating(rows: Array, cols: Array, size: Array) -> Array:
    return _wave((rows + cols) / np.sqrt(2), size)


_FIGURES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "disc": _disc,
    "ring": _ring,
    "square": _square,
    "triangle": _triangle,
    "cross": _cross,
    "horizontal grating": _horizontal_grating,
    "vertical grating": _vertical_grating,
    "diagonal grating": _diagonal_grating,
}

CLASSES: tuple[str, ...] = tuple(_FIGURES)
"""Names of the labels, in their order."""
