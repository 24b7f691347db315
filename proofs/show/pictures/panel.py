"""One attention map: a window of the padded input, with its marks, and the captions that explain them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ....convert.size import Size
from .scene import Scene
from .style import ATTENTION, FAINT, GREY, VERMILION, outline

KERNEL = "Heads lie as their taps lie in the kernel, each with the place of its centre, row and column, from the query."
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
    size, ((top, _), (left, _)) = scene.size, scene.layer.spec.pads_at(scene.size)
    bottom, right = top + size.rows, left + size.columns
    strips = [
        (window.left, window.top, window.right, top),
        (window.left, bottom, window.right, window.bottom),
        (window.left, top, left, bottom),
        (right, top, window.right, bottom),
    ]
    for x0, y0, x1, y1 in strips:
        if x1 > x0 and y1 > y0 and window.size:
            box = outline(x0 - 0.5, y0 - 0.5, x1 - x0, y1 - y0, hatch="//////", linewidth=0)
            box.set_edgecolor(FAINT)
            axes.add_patch(box)
    mark(axes, window, scene.mark, image=Window(top, bottom, left, right))


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


def marks_caption(scenes: Sequence[Scene]) -> str:
    """Caption that explains the marks and the locality of the attention."""
    alphas = [value for scene in scenes for value in scene.layer.regime.alpha]
    low, high = min(alphas), max(alphas)
    alpha = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    drawn = "".join(f" Layer {scene.title} is {scene.note}." for scene in scenes if scene.note)
    return (
        "Square: the query, the pixel under the middle of the kernel. Dotted: the border of the layer's input; "
        f"hatched: its padding, which heads see as well. Locality strength \u03b1 = {alpha}; the window is cut out "
        f"around the query.{drawn}"
    )
