"""The drawn images, made from a seed: the example networks' data set, and the image of reports where none is given.

There are eight classes of shapes and gratings. Every image is one *coverage* map in [0, 1] (how much of each pixel the
figure covers) between two random colours, plus noise. Position, size, tilt, colours and contrast are random; the class
is the figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..arguments import Size
from ..errors import ConversionError
from ..layer.layer import SelfAttention

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


def _triangle(rows: Array, cols: Array, size: Array) -> Array:
    """An equilateral triangle, tip up: each side is ``size / 2`` from the centre."""
    slopes = np.sqrt(0.75) * np.abs(cols) - 0.5 * rows
    return _inside(np.maximum(rows, slopes) - 0.5 * size)


def _cross(rows: Array, cols: Array, size: Array) -> Array:
    near, far = np.minimum(np.abs(rows), np.abs(cols)), np.maximum(np.abs(rows), np.abs(cols))
    return _inside(np.maximum(far - size, near - 0.3 * size))


def _wave(position: Array, period: Array) -> Array:
    return 0.5 + 0.5 * np.sin(2 * np.pi * position / period)


_FIGURES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "disc": lambda rows, cols, size: _inside(np.hypot(rows, cols) - size),
    "ring": lambda rows, cols, size: _inside(np.abs(np.hypot(rows, cols) - 0.8 * size) - 0.2 * size),
    "square": lambda rows, cols, size: _inside(np.maximum(np.abs(rows), np.abs(cols)) - 0.85 * size),
    "triangle": _triangle,
    "cross": _cross,
    "horizontal grating": lambda rows, _, size: _wave(rows, size),
    "vertical grating": lambda _, cols, size: _wave(cols, size),
    "diagonal grating": lambda rows, cols, size: _wave((rows + cols) / np.sqrt(2), size),
}

CLASSES: tuple[str, ...] = tuple(_FIGURES)
"""Names of the labels, in their order."""


DRAWN_SIZE = Size(64, 64)
MOST_NUMBERS = 2**26  # numbers of a drawn image: 268 MB
_DEPTH = 8  # planes of a volume that is made of an image
_PLANES = 64  # different ones of an image with more channels
_SEQUENCE, _PLANE = 1, 2  # axes


def drawn_image(channels: int, size: Size = DRAWN_SIZE) -> Tensor:
    """A ring, a square and a grating before a slope, each channel weighing them in its own way.

    Args:
        channels: Number of channels.
        size: Rows and columns.

    Returns:
        [1, channels, rows, columns], float32, within -1 to 1.

    Raises:
        ConversionError: That is more than ``MOST_NUMBERS``.
    """
    if channels * math.prod(size) > MOST_NUMBERS:
        raise ConversionError(f"an image of {channels:,} channels and {size} pixels is too large to be drawn")
    row, column = torch.meshgrid(
        *((torch.arange(n, dtype=torch.float32, device="cpu") + 0.5) / n for n in size), indexing="ij"
    )
    ring = _coverage((torch.hypot(row - 0.34, column - 0.33) - 0.17).abs() - 0.05, size)
    square = _coverage(torch.maximum((row - 0.68).abs(), (column - 0.64).abs()) - 0.17, size)
    grating = 0.5 + 0.5 * torch.sin(2 * math.pi * 9 * (row + column))
    slope = 0.5 * column - 0.35 * row
    planes = []
    for channel in range(min(channels, _PLANES)):
        tint = math.cos(1.1 * channel + 0.4)  # no two of the first channels weigh alike
        planes.append(slope * (0.6 + 0.4 * tint) - ring * (0.55 + 0.2 * tint) + square * (0.25 - 0.35 * tint) * grating)
    return torch.stack(planes).clamp(-1, 1)[torch.arange(channels, device="cpu") % _PLANES].unsqueeze(0)


def drawn_input(layer: SelfAttention, size: Size = DRAWN_SIZE) -> Tensor:
    """A drawn image as a layer takes it: [1, in_channels, *size], in the layer's precision and on its device.

    Raises:
        ConversionError: As ``drawn_image``.
    """
    with torch.device("cpu"):  # whatever torch's default is
        planes = drawn_image(layer.in_channels, size)
    return network_input(planes.to(layer.weight), layer.spec.axes)


def network_input(image: Tensor, axes: int) -> Tensor:
    """Input for a network over this many axes from an image [1, channels, rows, columns]: a row, or a film."""
    if axes == _SEQUENCE:
        return image[:, :, image.shape[2] // 3]
    return image if axes == _PLANE else image.unsqueeze(2).expand(-1, -1, _DEPTH, -1, -1)


def _coverage(distance: Tensor, size: Size) -> Tensor:
    """A signed distance to an outline (negative inside, the image's side is 1) as an antialiased coverage."""
    return (0.5 - distance * min(size)).clamp(0, 1)
