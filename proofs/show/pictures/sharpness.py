"""One head at several alphas: from a broad Gaussian to a single pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....convert.attention.layer import SelfAttention2d
from ....convert.bounds.tail import tail_fraction
from .panel import Window, draw_map
from .scene import Scene
from .style import GREY, Sheet

ALPHAS = (0.125, 0.5, 2.0, 8.0, 128.0)
_CELL = 1.35


def draw_sharpness(scene: Scene, head: int, alphas: Sequence[float] = ALPHAS) -> Sheet:
    """The same head of the same query, more and more local.

    Args:
        scene: The layer and the query.
        head: Index of the head.
        alphas: Locality strengths, in the order of the panels.
    """
    window = Window.around(Scene(scene.name, _with_alpha(scene, min(alphas)).layer, scene.x, scene.query))
    sheet = Sheet(
        len(alphas) * (_CELL + 0.1) + 1.0,
        _CELL + 0.3,
        title="One head, from soft to one-hot",
        caption=(
            f"Attention of head {head} for one query (square), for growing locality strength \u03b1. Under each map: "
            "the highest probability, and \u03c4(\u03b1), most of the attention that can miss the head's pixel in an "
            "image of any size. Colours run from 0 to the highest probability of each map."
        ),
    )
    for column, alpha in enumerate(alphas):
        soft = _with_alpha(scene, alpha)
        plane = soft.maps([head])[0]
        axes = sheet.axes(0.25 + column * (_CELL + 0.1), 0.2, _CELL, _CELL)
        draw_map(axes, soft, window, plane, highest=float(plane.max()))
        axes.set_title(f"\u03b1 = {alpha:g}", pad=3, size=8)
        note = f"highest {float(plane.max()):.2g}, \u03c4 = {tail_fraction(alpha):.1g}"
        axes.set_xlabel(note, size=6.5, color=GREY, labelpad=3)
    return sheet


def _with_alpha(scene: Scene, alpha: float) -> Scene:
    layer = scene.layer
    soft = SelfAttention2d(layer.spec, weight=layer.weight, bias=layer.bias, alpha=alpha)
    return replace(scene, layer=soft)
