"""Attention maps: a row a layer and a column a head (the article's Figures 1 and 4), or one head at several alphas.

A map is a window of the padded input, with its marks, and captions that explain them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...convert.arguments import Size
from .limits import evenly
from .scene import Scene
from .style import ATTENTION, FAINT, GREY, VERMILION, Sheet, outline

KERNEL = (
    "Heads are arranged as their taps in the kernel; in brackets, where a head looks: rows and columns from the query."
)
SPARE = "Below them spare heads, each over the input without padding, in colours up to its own highest probability."
_LEAST, _MOST = 5, 20  # pixels shown around the kernel's taps
_REACH = 2.6  # standard deviations of a soft head that should be seen


@dataclass(frozen=True)
class Window:
    """Rows and columns of the padded input that are shown: first to, not including, last."""

    top: int
    bottom: int
    left: int
    right: int

    @classmethod
    def around(cls, scene: Scene, *, least: int = _LEAST) -> Window:
        """The taps around the query, and as much beside them as soft heads reach, but at least so many pixels."""
        sigma, most = 1 / math.sqrt(2 * min(scene.layer.regime.alpha)), _MOST
        beside = min(max(math.ceil(_REACH * sigma), least), most)
        spans = (
            d * (k - 1) // 2 + beside for d, k in zip(scene.layer.spec.dilation, scene.layer.kernel_size, strict=True)
        )
        grid = scene.layer.spec.padded_size(scene.size)
        (top, bottom), (left, right) = (_clip(m, s, n) for m, s, n in zip(scene.mark, spans, grid, strict=True))
        return cls(top, bottom, left, right)

    @property
    def size(self) -> Size:
        """Rows and columns that are shown."""
        return Size(self.bottom - self.top, self.right - self.left)

    @classmethod
    def whole(cls, scene: Scene) -> Window:
        """All of the padded input, which spare heads look at."""
        grid = scene.layer.spec.padded_size(scene.size)
        return cls(0, grid.rows, 0, grid.columns)

    def of(self, plane: Tensor) -> Tensor:
        """The window of a plane [..., padded rows, padded columns]."""
        return plane[..., self.top : self.bottom, self.left : self.right]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top, as matplotlib wants them; pixel (0, 0) has its centre there."""
        return self.left - 0.5, self.right - 0.5, self.bottom - 0.5, self.top - 0.5


def draw_map(axes: Any, scene: Scene, window: Window, plane: Tensor, *, highest: float) -> None:
    """Draws one head's attention probabilities [padded rows, padded columns], from 0 to ``highest``."""
    axes.imshow(
        window.of(plane).numpy(), extent=window.extent, cmap=ATTENTION, vmin=0, vmax=highest, interpolation="nearest"
    )
    mark_places(axes, scene, window)


def mark_places(axes: Any, scene: Scene, window: Window) -> None:
    """Marks the query, and hatches the padding."""
    image = _image_in(scene)
    strips = [
        (window.left, window.top, window.right, image.top),
        (window.left, image.bottom, window.right, window.bottom),
        (window.left, image.top, image.left, image.bottom),
        (image.right, image.top, window.right, image.bottom),
    ]
    for x0, y0, x1, y1 in strips:
        if x1 > x0 and y1 > y0 and window.size:
            box = outline(x0 - 0.5, y0 - 0.5, x1 - x0, y1 - y0, hatch="//////", linewidth=0)
            box.set_edgecolor(FAINT)
            axes.add_patch(box)
    mark(axes, window, scene.mark, image=image)


def _image_in(scene: Scene) -> Window:
    (top, _), (left, _) = scene.layer.spec.pads_at(scene.size)
    return Window(top, top + scene.size.rows, left, left + scene.size.columns)


def _shows_padding(scene: Scene, least: int) -> bool:
    """Whether some of the padding is in a window of the scene's picture."""
    window = Window.whole(scene) if scene.spare_heads else Window.around(scene, least=least)
    image = _image_in(scene)
    within = image.top <= window.top and window.bottom <= image.bottom
    return not (within and image.left <= window.left and window.right <= image.right)


def mark(axes: Any, window: Window, query: tuple[int, int], *, image: Window | None, beside: float = 0.0) -> None:
    """Marks the query by a square and the image's border by dots, without ticks; with so many pixels beside."""
    if image is not None:
        (rows, columns), style = image.size, {"edgecolor": GREY, "linewidth": 0.6, "ls": ":"}
        axes.add_patch(outline(image.left - 0.5, image.top - 0.5, columns, rows, **style))
    row, column = query
    axes.add_patch(outline(column - 0.5, row - 0.5, 1, 1, edgecolor=VERMILION, linewidth=1.1))
    left, right, bottom, top = window.extent
    axes.set(xlim=(left - beside, right + beside), ylim=(bottom + beside, top - beside))
    axes.set(xticks=[], yticks=[], aspect="equal")
    for spine in axes.spines.values():
        spine.set(color=FAINT, linewidth=0.6)


def _clip(middle: int, span: int, length: int) -> tuple[int, int]:
    """An interval of 2 span + 1 around the middle, moved and cut to fit into 0 to length."""
    width = min(2 * span + 1, length)
    start = min(max(middle - span, 0), length - width)
    return start, start + width


def offset(scene: Scene, head: int) -> str:
    """Offset of a head's centre from the marked query, as (row, column)."""
    center = scene.layer.regime.centers[head]
    return "({})".format(
        ", ".join(f"{value:+.3g}".replace("+0", "0").replace("-", "\N{MINUS SIGN}") for value in center)
    )


def marks_caption(scenes: Sequence[Scene], *, least: int = _LEAST) -> str:
    """Caption that explains the marks in windows of at least so many pixels, and the locality of the attention."""
    alphas = [value for scene in scenes for value in scene.layer.regime.alpha]
    low, high = min(alphas), max(alphas)
    alpha = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    heads = "heads of taps" if any(scene.spare_heads for scene in scenes) else "heads"
    drawn = "".join(f" Layer {scene.title} is {scene.note}." for scene in scenes if scene.note)
    is_padded = any(_shows_padding(scene, least) for scene in scenes)
    padding = f" Dotted: the border of the layer's input; hatched: its padding, which {heads} see as well." * is_padded
    return (
        f"Square: the query, the pixel under the middle of the kernel.{padding} Sharpness \u03b1 = {alpha}; "
        f"the window is cut out around the query.{drawn}"
    )


def elsewhere(scenes: Sequence[Scene]) -> str:
    """Caption of a picture that has the heads of taps alone, for layers with others; else nothing."""
    return " Maps have the spare heads, too." if any(scene.spare_heads for scene in scenes) else ""


MOST_HEADS = 9  # heads of a layer in a row
_NAMES, _SCALE = 1.55, 0.75  # inches left of the maps, and right of them
_LETTERS = 20  # of a name left of the maps
_CELL, _GAP = 0.72, 0.07  # inches of a map in a row, and between two
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
        caption=_rows_caption(scenes, shown),
    )
    for row, (scene, numbers, planes) in enumerate(zip(shown, heads, maps, strict=True)):
        _write_name(sheet, scene, row * step)
        for column, (head, plane) in enumerate(zip(numbers, planes, strict=True)):
            axes = sheet.axes(_NAMES + column * step, row * step, _CELL, _CELL)
            window = Window.around(scene) if head < scene.layer.num_heads else Window.whole(scene)
            draw_map(axes, scene, window, plane, highest=highest)
            axes.text(0.04, 0.95, str(head), transform=axes.transAxes, va="top", size=5.5, color=GREY)
    draw_scale(sheet, right + 0.06, 0, min(len(shown) * step - _GAP, 1.6), highest)
    return sheet


def _write_name(sheet: Sheet, scene: Scene, top: float) -> None:
    name = textwrap.wrap(scene.title, _LETTERS, max_lines=2, placeholder="\u2026")
    parts = str(scene.layer.spec).split(", ")
    geometry = "\n".join(", ".join(parts[start : start + 2]) for start in range(0, len(parts), 2))
    sheet.write(0.15, top + 0.02, "\n".join(name), va="top", size=7, weight="bold")
    sheet.write(0.15, top + 0.05 + 0.13 * len(name), geometry, va="top", size=6, color=GREY, linespacing=1.4)


def _kernel_grid(scene: Scene) -> Sheet:
    """The heads of one layer, placed as their taps lie in the kernel."""
    rows, columns = scene.layer.kernel_size
    spare = scene.spare_heads[:MOST_HEADS]
    below = -(-len(spare) // columns)  # rows of spare heads
    cell = min(1.35, 7.0 / max(rows, columns))
    step = cell + (_TITLE if cell > _ROOMY else 0.06)
    width = max(columns * step + 2 * _SCALE, 5.5)
    left = (width - columns * step - 0.3) / 2
    planes, window = scene.maps([*range(scene.layer.num_heads), *spare]), Window.around(scene)
    sheet = Sheet(
        width,
        (rows + below) * step + 0.22,
        title=f"Where each head{f' of layer {scene.title}' if scene.name else ''} looks",
        caption=f"{scene.layer.spec}. {KERNEL} {SPARE + ' ' if spare else ''}{marks_caption([scene])}",
    )
    for head, plane in enumerate(planes):
        row, column = divmod(head, columns)
        axes = sheet.axes(left + column * step, 0.22 + row * step, cell, cell)
        is_spare = head >= scene.layer.num_heads
        shown = Window.whole(scene) if is_spare else window
        draw_map(axes, scene, shown, plane, highest=float(plane.max() if is_spare else planes.max()))
        if cell > _ROOMY:
            name = "spare" if is_spare else offset(scene, head)
            axes.set_title(f"head {head}: {name}", pad=3, color=GREY, size=7)
    draw_scale(sheet, left + columns * step + 0.02, 0.22, min(rows * step - 0.1, 1.6), float(planes.max()))
    return sheet


def draw_scale(sheet: Sheet, left: float, top: float, height: float, highest: float) -> None:
    """The colours of attention probabilities, from 0 to the highest that is shown."""
    axes = sheet.axes(left, top, 0.1, height)
    axes.imshow(
        torch.linspace(1, 0, 128, dtype=torch.float32, device="cpu").unsqueeze(1).numpy(),
        extent=(0, 1, 0, highest),
        cmap=ATTENTION,
        aspect="auto",
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
    return [*sorted(nearest[:MOST_HEADS]), *scene.spare_heads[:MOST_HEADS]]


def _rows_caption(scenes: Sequence[Scene], shown: Sequence[Scene]) -> str:
    parts = ["Every small picture is the attention of one head, whose number it bears, for one query."]
    if len(shown) < len(scenes):
        parts.append(f"{len(shown)} of {len(scenes)} layers; --layer NAME shows any one.")
    if any(scene.spare_heads for scene in shown):
        parts.append("Behind the heads of the taps, spare heads, over the input without padding.")
    if any(scene.layer.num_heads > MOST_HEADS for scene in shown):
        parts.append(f"Of kernels with more taps, the {MOST_HEADS} heads around the middle.")
    return " ".join([*parts, marks_caption(shown)])
