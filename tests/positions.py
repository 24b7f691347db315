"""Changes to a layer's positions, one head at a time."""

from __future__ import annotations

from typing import Any

from conv2attn.convert import SelfAttention


def set_alpha(layer: SelfAttention, head: int, value: float) -> None:
    """Gives a head a sharpness of its own."""
    alpha = list(layer.positions.alpha)
    alpha[head] = value
    layer.set_positions(alpha=alpha)


def move_center(layer: SelfAttention, index: int | tuple[int, int], by: Any) -> None:
    """Moves the centre of a head, or one coordinate of it, by so many pixels."""
    centers = layer.centers + 0
    centers[index] += by
    layer.set_positions(centers=centers)
