"""The error against alpha, on one input, with the certificate's bound over it; both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...convert.errors import ConversionError
from ...convert.heads.regime import ONE_HOT_ALPHA
from ..text import raised

# 1/32 to 1024. Where rounding rules, only powers of two: their scores are exact, and the bound is smaller.
from .curve import ALPHAS, Point, error_curve
from .limits import evenly
from .scene import Scene
from .style import BLUE, FAINT, GREY, VERMILION, Sheet

_ACROSS = 3


def draw_error(scenes: Sequence[Scene]) -> Sheet:
    """A panel for each layer: the largest difference over all outputs, and the bound.

    Raises:
        ConversionError: No layer is left.
    """
    scenes = [scene for scene in scenes if scene.is_positional]
    if not scenes:
        raise ConversionError(
            "an error against alpha is drawn for quadratic scores alone; those of these layers are learned, or spare "
            "heads were trained, which ungraft(model, all=True) takes off"
        )
    shown = evenly(scenes)
    across = min(len(shown), _ACROSS)
    wide, high = (2.2, 1.6) if len(shown) > 1 else (5.0, 3.2)
    rows = -(-len(shown) // across)
    one = len(shown) == 1
    sheet = Sheet(
        across * (wide + 0.75) + 0.15,
        rows * (high + 0.62) + 0.05,
        title=f"Attention against convolution{f', layer {shown[0].title}' if one and shown[0].name else ''}",
        caption=_caption(scenes, shown),
    )
    for number, scene in enumerate(shown):
        row, column = divmod(number, across)
        axes = sheet.axes(0.7 + column * (wide + 0.75), 0.2 + row * (high + 0.62), wide, high)
        if not one:
            axes.set_title(scene.title, pad=3, color=GREY, size=7)
        _draw_curve(axes, scene, error_curve(scene.layer, scene.x, ALPHAS), legend=number == 0)
    return sheet


def _draw_curve(axes: Any, scene: Scene, points: Sequence[Point], *, legend: bool) -> None:
    bounds = {point.alpha: max(point.bounds) for point in points if point.bounds is not None}
    apart = {point.alpha: max(point.differences) for point in points if max(point.differences) > 0}
    axes.set(xscale="log", yscale="log", xlabel="sharpness \u03b1", ylabel="difference of an output")
    style = {"color": VERMILION, "linewidth": 1.3, "linestyle": (0, (4, 2))}
    axes.plot(list(bounds), list(bounds.values()), label="proven bound", **style)
    style = {"color": BLUE, "linewidth": 1.3, "marker": "o", "markersize": 2.2}
    axes.plot(list(apart), list(apart.values()), label="measured", **style)
    threshold, last = ONE_HOT_ALPHA[scene.layer.regime.dtype], points[-1].alpha
    if threshold <= last:
        axes.axvline(threshold, color=GREY, linewidth=0.7, linestyle=":")
    own = scene.layer.regime.shared_alpha
    if own is not None and points[0].alpha <= own <= last:
        axes.axvline(own, color=FAINT, linewidth=3, zorder=0)
    axes.grid(color=FAINT, linewidth=0.4)
    ticks = {2.0**-5: "1/32", 0.25: "1/4", 1.0: "1", 8.0: "8", 128.0: "128", 1024.0: "1024"}
    shown = [alpha for alpha in ticks if alpha <= last]
    axes.set_xticks(shown, [ticks[alpha] for alpha in shown])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(_power_of_ten)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if legend:
        axes.legend(loc="upper right")


def _power_of_ten(value: float, _: int) -> str:
    """10 to a power in Unicode, since names must not be read as formulas, and so nothing is."""
    return f"10{raised(round(math.log10(value)))}"


def _caption(scenes: Sequence[Scene], shown: Sequence[Scene]) -> str:
    threshold = ONE_HOT_ALPHA[shown[0].layer.regime.dtype]
    lines = (
        f"; from the dotted line on (\u03b1 = {threshold:g}) attention is exactly one-hot. Broad grey line: the "
        "layer's own \u03b1."
    )
    some = "" if len(shown) == len(scenes) else f" {len(shown)} of {len(scenes)} layers; --layer NAME shows any one."
    return (
        "Measured: the largest |attention \u2212 convolution| over all outputs of the layer for the input it gets "
        "here, in the units of its output. Bound: the certificate for the range of that input. Both fall as "
        f"exp(\u2212\u03b1) until only rounding is left{lines if threshold <= ALPHAS[-1] else '.'}{some}"
    )
