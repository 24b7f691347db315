"""Contours around the fewest pixels that hold 50 % and 90 % of each head's attention (the draft's Figures 2 and 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .limits import evenly
from .maps import Window, elsewhere, mark_places, marks_caption
from .scene import Scene
from .style import GREY, HEAD_COLOURS, Sheet

MASSES = (0.5, 0.9)
_ACROSS, _SIDE = 3, 2.05  # panels in a row, inches of a panel
_BESIDE = 2  # pixels shown around the taps, at least
_FINER = 8  # points a pixel, for smooth lines


def draw_contours(scenes: Sequence[Scene]) -> Sheet:
    """A panel for each layer, with all heads around the query."""
    shown = evenly(scenes)
    across = min(len(shown), _ACROSS)
    side = _SIDE if len(shown) > 1 else 4.2
    rows = -(-len(shown) // across)
    width = max(across * (side + 0.15) + 0.15, 5.5)
    some = "" if len(shown) == len(scenes) else f" {len(shown)} of {len(scenes)} layers."
    sheet = Sheet(
        width,
        rows * (side + 0.3) + 0.1,
        title=f"Contours of attention: {f'layer {scenes[0].title}' if len(scenes) == 1 else f'{len(scenes)} layers'}",
        caption=(
            "Thick and filled: around the fewest pixels that hold 50\u00a0% of a head's attention; thin: 90\u00a0%, "
            f"where these are more. A colour for each head; they repeat after {len(HEAD_COLOURS)}.{some} "
            f"{marks_caption(shown, least=_BESIDE)}{elsewhere(shown)}"
        ),
    )
    left = (width - across * (side + 0.15) + 0.15) / 2
    for number, scene in enumerate(shown):
        row, column = divmod(number, across)
        axes = sheet.axes(left + column * (side + 0.15), 0.22 + row * (side + 0.3), side, side)
        heads = scene.layer.num_heads
        axes.set_title(f"{scene.title}: {heads} head{'' if heads == 1 else 's'}", pad=3, color=GREY, size=7)
        window = Window.around(scene, least=_BESIDE)
        contour_heads(axes, window, scene.maps())
        mark_places(axes, scene, window)
    return sheet


def level(plane: Tensor, mass: float) -> float:
    """The probability that separates the fewest pixels that hold a share of a distribution from the others.

    Args:
        plane: Probabilities, [rows, columns].
        mass: The share, between 0 and 1.

    Returns:
        The middle between the smallest probability inside and the largest outside.
    """
    ordered = plane.flatten().sort(descending=True).values
    count = int((ordered.cumsum(0) < mass * float(ordered.sum())).sum()) + 1
    outside = float(ordered[count]) if count < len(ordered) else 0.0
    return (float(ordered[count - 1]) + outside) / 2


def contour_heads(axes: Any, window: Window, maps: Tensor) -> None:
    """Draws the contours of attention maps [heads, rows, columns] inside a window."""
    for head, plane in enumerate(maps):
        colour = HEAD_COLOURS[head % len(HEAD_COLOURS)]
        rows, columns, smooth = _smoothed(window, plane)
        half, most = (level(plane, mass) for mass in MASSES)
        axes.contourf(columns, rows, smooth, levels=[half, math.inf], colors=[colour], alpha=0.25)
        axes.contour(columns, rows, smooth, levels=[half], colors=[colour], linewidths=1.3)
        if most < half:
            axes.contour(columns, rows, smooth, levels=[most], colors=[colour], linewidths=0.7)


def _smoothed(window: Window, plane: Tensor) -> tuple[Any, Any, Any]:
    """The window's probabilities, interpolated between pixels; beyond its edge there are none, so that contours close.

    Returns:
        Rows and columns of the finer grid, in pixels, and the values [rows, columns].
    """
    framed = F.pad(window.of(plane), (2, 2, 2, 2))
    fine = [(length - 1) * _FINER + 1 for length in framed.shape]
    smooth = F.interpolate(framed[None, None], size=fine, mode="bicubic", align_corners=True)[0, 0]
    starts = window.top - 2, window.left - 2
    rows, columns = (
        start + torch.arange(n, dtype=torch.float32, device="cpu") / _FINER
        for start, n in zip(starts, fine, strict=True)
    )
    return rows.numpy(), columns.numpy(), smooth.numpy()
