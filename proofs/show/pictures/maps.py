"""Attention maps: a row a layer and a column a head (the article's Figures 1 and 4), or one head at several alphas."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

import torch

from ....convert.bounds.tail import tail_fraction
from ....convert.layer.layer import SelfAttention2d
from .limits import evenly
from .panel import KERNEL, Window, draw_map, marks_caption, offset
from .scene import Scene
from .style import ATTENTION, GREY, Sheet

ALPHAS = (0.125, 0.5, 2.0, 8.0, 128.0)  # of one head, from soft to one-hot
MOST_HEADS = 9  # heads of a layer in a row
_NAMES, _SCALE = 1.55, 0.75  # inches left of the maps, and right of them
_LETTERS = 20  # of a name left of the maps
_CELL, _GAP = 0.72, 0.07  # inches of a map in a row, and between two
_LARGE_CELL = 1.35  # of a map that has the picture to itself but for its alphas
_ROOMY, _TITLE = 0.7, 0.24  # inches of a map that gets a title, and of the title


def draw_maps(scenes: Sequence[Scene]) -> Sheet:
    """The maps of one layer as the kernel lies, or those of several layers, a row each."""
    if len(scenes) == 1:
        return _kernel_grid(scenes[0])
    shown = evenly(scenes)
    heads = [_shown_heads(scene) for scene in shown]
    maps = [scene.maps(numbers) for scene, numbers in zip(shown, heads, strict=True)]
    highest = max(float(planes.max()) for planes in maps)
    step, right = _CELL + _GAP, _NAMES + max(map(len, heads)) * (_CELL + _GAP)
    sheet = Sheet(
        max(right + _SCALE, 6),
        len(shown) * step,
        title="Where each head looks: a row for each layer, a picture for each head",
        caption=_rows_caption(scenes, shown, heads),
    )
    for row, (scene, numbers, planes) in enumerate(zip(shown, heads, maps, strict=True)):
        _write_name(sheet, scene, row * step)
        for column, (head, plane) in enumerate(zip(numbers, planes, strict=True)):
            axes = sheet.axes(_NAMES + column * step, row * step, _CELL, _CELL)
            draw_map(axes, scene, Window.around(scene), plane, highest=highest)
            axes.text(0.04, 0.95, str(head), transform=axes.transAxes, va="top", size=5.5, color=GREY)
    draw_scale(sheet, right + 0.06, 0, min(len(shown) * step - _GAP, 1.6), highest)
    return sheet


def _write_name(sheet: Sheet, scene: Scene, top: float) -> None:
    """Writes a layer's name and its geometry left of its maps."""
    name = textwrap.wrap(scene.title, _LETTERS, max_lines=2, placeholder="\u2026")
    parts = str(scene.layer.spec).split(", ")
    geometry = "\n".join(", ".join(parts[start : start + 2]) for start in range(0, len(parts), 2))
    sheet.write(0.15, top + 0.02, "\n".join(name), va="top", size=7, weight="bold")
    sheet.write(0.15, top + 0.05 + 0.13 * len(name), geometry, va="top", size=6, color=GREY, linespacing=1.4)


def _kernel_grid(scene: Scene) -> Sheet:
    """The heads of one layer, placed as their taps lie in the kernel."""
    rows, columns = scene.layer.kernel_size
    cell = min(1.35, 7.0 / max(rows, columns))
    step = cell + (_TITLE if cell > _ROOMY else 0.06)
    width = max(columns * step + 2 * _SCALE, 5.5)
    left = (width - columns * step - 0.3) / 2
    planes, window = scene.maps(), Window.around(scene)
    sheet = Sheet(
        width,
        rows * step + 0.22,
        title=f"Where each head of layer {scene.title} looks",
        caption=f"{scene.layer.spec}. {KERNEL} {marks_caption([scene])}",
    )
    for head, plane in enumerate(planes):
        row, column = divmod(head, columns)
        axes = sheet.axes(left + column * step, 0.22 + row * step, cell, cell)
        draw_map(axes, scene, window, plane, highest=float(planes.max()))
        if cell > _ROOMY:
            axes.set_title(f"head {head}: {offset(scene, head)}", pad=3, color=GREY, size=7)
    draw_scale(sheet, left + columns * step + 0.02, 0.22, min(rows * step - 0.1, 1.6), float(planes.max()))
    return sheet


def draw_scale(sheet: Sheet, left: float, top: float, height: float, highest: float) -> None:
    """The colours of attention probabilities, from 0 to the highest that is shown."""
    axes = sheet.axes(left, top, 0.1, height)
    axes.imshow(
        torch.linspace(1, 0, 128).unsqueeze(1).numpy(), extent=(0, 1, 0, highest), cmap=ATTENTION, aspect="auto"
    )
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.set(xticks=[], yticks=[0, highest], yticklabels=["0", f"{highest:.2g}"])
    axes.set_ylabel("attention probability", size=7, labelpad=-6 if highest == 1 else -10)
    axes.tick_params(length=2)
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)


def _shown_heads(scene: Scene) -> list[int]:
    """All heads, or those nearest to the middle of a kernel with more than ``MOST_HEADS``."""
    centres, taps = scene.layer.spec.tap_offsets, range(scene.layer.num_heads)
    nearest = sorted(taps, key=lambda head: max(map(abs, centres[head])))
    return sorted(nearest[:MOST_HEADS])


def _rows_caption(scenes: Sequence[Scene], shown: Sequence[Scene], heads: Sequence[Sequence[int]]) -> str:
    parts = ["Every small picture is the attention of one head, whose number it bears, for one query."]
    if len(shown) < len(scenes):
        parts.append(f"{len(shown)} of {len(scenes)} layers; --layer NAME shows any one.")
    if any(len(numbers) < scene.layer.num_heads for numbers, scene in zip(heads, shown, strict=True)):
        parts.append(f"Of kernels with more taps, the {MOST_HEADS} heads around the middle.")
    return " ".join([*parts, marks_caption(shown)])


def draw_sharpness(scene: Scene, head: int) -> Sheet:
    """The same head of the same query, more and more local."""

    def with_alpha(alpha: float) -> Scene:
        layer = scene.layer
        return replace(scene, layer=SelfAttention2d(layer.spec, weight=layer.weight, bias=layer.bias, alpha=alpha))

    window = Window.around(with_alpha(min(ALPHAS)))
    sheet = Sheet(
        len(ALPHAS) * (_LARGE_CELL + 0.1) + 1.0,
        _LARGE_CELL + 0.3,
        title="One head, from soft to one-hot",
        caption=(
            f"Attention of head {head} for one query (square), for growing locality strength \u03b1. Under each map: "
            "the highest probability, and \u03c4(\u03b1), most of the attention that can miss the head's pixel in an "
            "image of any size. Colours run from 0 to the highest probability of each map."
        ),
    )
    for column, alpha in enumerate(ALPHAS):
        soft = with_alpha(alpha)
        plane = soft.maps([head])[0]
        axes = sheet.axes(0.25 + column * (_LARGE_CELL + 0.1), 0.2, _LARGE_CELL, _LARGE_CELL)
        draw_map(axes, soft, window, plane, highest=float(plane.max()))
        axes.set_title(f"\u03b1 = {alpha:g}", pad=3, size=8)
        note = f"highest {float(plane.max()):.2g}, \u03c4 = {tail_fraction(alpha):.1g}"
        axes.set_xlabel(note, size=6.5, color=GREY, labelpad=3)
    return sheet
