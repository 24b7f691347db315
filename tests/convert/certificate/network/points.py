"""Ranges around tensors, and operations that are called on them."""

from __future__ import annotations

import torch
from torch import Tensor

from conv2attn.convert.certificate.network.call import Call
from conv2attn.convert.certificate.network.interval import Arithmetic
from conv2attn.convert.certificate.network.operation import Point
from tests.convert.certificate.network.operations import Operation


def ranges(x: Tensor, width: float, trial: int) -> Point:
    """A range around a tensor, with a center somewhere in it: in its middle, at an end, or just outside."""
    values = x.double()
    low, high = values - width, values + width * (1 + trial % 2)
    places = (low + high) / 2, low, high + width / 8, low + (high - low) * torch.rand_like(values)
    return Point(low, high, torch.zeros_like(low), places[trial % 4], 0)


def called(operation: Operation, points: list[Point], hypothesis: str = "exact") -> Call:
    shape = operation.run([point.low for point in points]).shape
    arithmetic = Arithmetic(torch.float64, False, hypothesis)
    return Call.of(
        operation.target, operation.arguments(points, torch.float64), dict(operation.kwargs), shape, arithmetic
    )
