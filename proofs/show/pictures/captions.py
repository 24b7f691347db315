"""Captions about the marks in a picture, and the choice of layers that a picture has room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .scene import Scene

MOST_LAYERS = 12
KERNEL = "Heads lie as their taps lie in the kernel, each with the place of its centre, row and column, from the query."
_T = TypeVar("_T")


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


def evenly(items: Sequence[_T], most: int = MOST_LAYERS) -> list[_T]:
    """At most so many of the items, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]
