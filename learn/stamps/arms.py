"""The ways in which a trained denoiser goes on: as the CNN, as attention, and as what attention is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ..melting.melt import melt
from ..training.recipe import Recipe
from .denoiser import LOOKS, Denoiser, with_context, with_larger_kernel

START = Recipe(epochs=6, lr=3e-3, clip=1.0)
ONWARD = Recipe(epochs=5, lr=3e-3, clip=1.0)
CONTENT = 8
"""Dimension of queries and keys."""


@dataclass(frozen=True)
class Arm:
    """A way in which the CNN goes on.

    Attributes:
        title: In a table.
        build: Makes the network from a trained denoiser, whose own it may be.
        lr: The rate that the runs of ``RATE_SEED`` chose among ``RATES``.
        epochs: Of ``STEPS`` steps each.
        scratch: Whether it begins with random weights, not with the trained ones.
        rate_of: The arm whose rate it takes, where none is chosen for it.
    """

    title: str
    build: Callable[[Denoiser], nn.Module]
    lr: float
    epochs: int = ONWARD.epochs
    scratch: bool = False
    rate_of: str | None = None


def _with_content(cnn: Denoiser) -> nn.Module:
    return melt(cnn, content=CONTENT)


def _with_positions(cnn: Denoiser) -> nn.Module:
    return melt(cnn, filter_fn=lambda _, name: name == LOOKS)


ARMS = {
    "cnn": Arm("as the CNN", lambda cnn: cnn, 5e-3),
    "content": Arm("melted, content in the last 3x3 layer", _with_content, 5e-3),
}
CONTROLS = {
    "context": Arm("with a global context", with_context, 5e-3),
    "kernel": Arm("with a 9x9 kernel in the last 3x3 layer", with_larger_kernel, 5e-3),
    "positions": Arm("melted, positions alone", _with_positions, 5e-3),
    "longer": Arm("as the CNN, four times the steps", lambda cnn: cnn, 5e-3, 4 * ONWARD.epochs, rate_of="cnn"),
    "scratch": Arm(
        "content, from random weights, all the steps",
        _with_content,
        5e-3,
        START.epochs + ONWARD.epochs,
        scratch=True,
        rate_of="content",
    ),
}
