"""The kernel beside the heads that carry its taps: weight W_Delta on the left, where its head looks on the right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from torch import Tensor

from .maps import KERNEL, Window, draw_map, draw_scale, elsewhere, marks_caption, offset
from .scene import Scene
from .style import FAINT, GREY, INK, SIGNED, Sheet

_SIDE = 2.9  # inches of the kernel
_WRITTEN = 25  # taps whose weights are written


def draw_kernel(scenes: Sequence[Scene]) -> Sheet:
    """The first output channel's weights on its first input channel, beside the attention maps."""
    scene = scenes[0]
    rows, columns = scene.layer.kernel_size
    cell = _SIDE / max(rows, columns)
    weights, planes = scene.layer.weight.detach()[0, 0].double().cpu(), scene.maps()
    high = rows * cell
    sheet = Sheet(
        2 * columns * cell + 1.75,
        high + 0.3,
        title=f"A kernel and its heads: layer {scene.title}",
        caption=(
            "Left: the weights of output channel 0 on input channel 0, one for each tap. Right: the attention of the "
            "head that carries the tap's weights as its value projection: it brings the pixel that the tap is "
            f"multiplied with. {KERNEL} {marks_caption([scene])}{elsewhere([scene])}"
        ),
    )
    _draw_weights(sheet.axes(0.25, 0.22, columns * cell, high), weights)
    left, window, highest = columns * cell + 0.75, Window.around(scene), float(planes.max())
    sheet.write(0.25, 0.17, "kernel W: a weight for each tap", va="bottom", size=7.5, color=GREY)
    sheet.write(left, 0.17, "attention: a head for each tap", va="bottom", size=7.5, color=GREY)
    gap = 0.04
    for head, plane in enumerate(planes):
        row, column = divmod(head, columns)
        axes = sheet.axes(left + column * cell + gap / 2, 0.22 + row * cell + gap / 2, cell - gap, cell - gap)
        draw_map(axes, scene, window, plane, highest=highest)
        if cell > 0.8:
            axes.text(0.05, 0.95, offset(scene, head), transform=axes.transAxes, va="top", size=6, color=GREY)
    draw_scale(sheet, left + columns * cell + 0.1, 0.24, min(high, 1.6), highest)
    return sheet


def _draw_weights(axes: Any, weights: Tensor) -> None:
    """A cell for each tap, coloured by the sign and size of its weight."""
    largest = float(weights.abs().max()) or 1.0
    axes.imshow(weights.numpy(), cmap=SIGNED, vmin=-1.3 * largest, vmax=1.3 * largest, aspect="equal")
    axes.set(xticks=[], yticks=[])
    for edge in range(weights.shape[1] + 1):
        axes.axvline(edge - 0.5, color="white", linewidth=1.5)
    for edge in range(weights.shape[0] + 1):
        axes.axhline(edge - 0.5, color="white", linewidth=1.5)
    if weights.numel() <= _WRITTEN:
        for row, column in product(*map(range, weights.shape)):
            value = float(weights[row, column])
            colour, written = "white" if abs(value) > 0.85 * largest else INK, f"{value:+.2f}"
            style = {"ha": "center", "va": "center", "size": 7, "color": colour}
            axes.text(column, row, written.replace("-", "\N{MINUS SIGN}"), **style)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
