"""Options for opening a checkpoint. Torch is not needed: the command line makes them first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .architecture import Architecture

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Opening:
    """Options for opening a checkpoint.

    Attributes:
        architecture: The CNN, of which a copy is used, or how to build it. None takes the network in the file, or the
            one that a folder names (with consent, where needed), or the layers whose geometry the file describes.
        ema: Use the moving average of the weights.
        weights: Key of the weights, nested keys joined by dots; None finds them.
        trust: Run the code that a program brings or names, or that a folder names as its architecture.
    """

    architecture: nn.Module | Architecture | None = None
    ema: bool = False
    weights: str | None = None
    trust: bool = False
