"""Accuracy over epochs, with the spread over seeds (the draft's Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..pictures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, Sheet

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK, GREY)
_WIDTH, _HEIGHT = 6.2, 3.1
_NAMES_APART = 0.055  # of the height: names at the right edge do not lie on each other


def draw_curves(accuracies: Mapping[str, Sequence[Sequence[float]]], *, data: str) -> Sheet:
    """A line for each encoding: the mean over seeds, in a band from the lowest to the highest seed.

    Args:
        accuracies: For each encoding, for each seed, on the validation images before training and after each epoch.
        data: Description of the images.
    """
    seeds = max(len(runs) for runs in accuracies.values())
    spread = f" Line: the mean over {seeds} seeds; band: from the lowest to the highest." if seeds > 1 else ""
    sheet = Sheet(
        _WIDTH + 1.2,
        _HEIGHT,
        title=f"Accuracy on the validation images of {data}",
        caption=(
            f"After each epoch; 0 is before training.{spread} The axis is cut below the lowest accuracy of the second "
            "half. Dashed: residual networks."
        ),
    )
    axes = sheet.axes(0.6, 0.05, _WIDTH - 0.7, _HEIGHT - 0.5)
    curves = {name: torch.tensor(runs, dtype=torch.float64) for name, runs in accuracies.items()}
    for number, (name, runs) in enumerate(curves.items()):
        colour, epochs = _COLOURS[number % len(_COLOURS)], range(runs.shape[1])
        style = "--" if name.startswith("resnet") else "-"
        axes.fill_between(epochs, runs.amin(0).numpy(), runs.amax(0).numpy(), color=colour, alpha=0.15, linewidth=0)
        axes.plot(epochs, runs.mean(0).numpy(), style, color=colour, linewidth=1.2)
    low = min(float(runs[:, runs.shape[1] // 2 :].min()) for runs in curves.values())
    bottom, top = max(0.0, low - 0.02), 1.0
    axes.set(xlim=(0, max(runs.shape[1] for runs in curves.values()) - 1 or 1), ylim=(bottom, top))
    axes.set(xlabel="epoch", ylabel="accuracy")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    ends = {name: (float(runs[:, -1].mean()) - bottom) / (top - bottom) for name, runs in curves.items()}
    for (name, place), number in zip(_apart(ends).items(), _numbers(ends, curves), strict=True):
        colour = _COLOURS[number % len(_COLOURS)]
        axes.text(1.01, place, name, color=colour, size=7, va="center", transform=axes.transAxes)
    return sheet


def _apart(places: Mapping[str, float]) -> dict[str, float]:
    """The names from the highest to the lowest, each far enough below the one before."""
    found: dict[str, float] = {}
    limit = 1.0
    for name in sorted(places, key=lambda name: -places[name]):
        found[name] = min(places[name], limit)
        limit = found[name] - _NAMES_APART
    return found


def _numbers(places: Mapping[str, float], curves: Mapping[str, object]) -> list[int]:
    """The number of each curve, in the order of ``_apart``."""
    order = list(curves)
    return [order.index(name) for name in _apart(places)]
