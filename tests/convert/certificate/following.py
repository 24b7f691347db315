"""One function of torch, followed alone: what is known of its result, or why nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.convert.certificate.propagation.interval import Arithmetic, Interval
from conv2attn.convert.certificate.propagation.network import Follower, follow
from conv2attn.convert.size import Size

SIZE, IMAGES = Size(2, 6), 2
SINGLE = Arithmetic(torch.float32)


def interval(low: list[float], high: list[float], error: list[float]) -> Interval:
    """Bounds of channels, as numbers."""
    return Interval(*(torch.tensor(values, dtype=torch.float64) for values in (low, high, error)))


# Channels on both sides of 0, near it and far from it, below it and above it.
X = interval([-3, -0.5, -2, 0.25], [8, 0.75, -0.25, 0.5], [0.25, 0.125, 0.5, 0.0625])


class One(nn.Module):
    """A network of one function, beside a parameter that gives the dtype."""

    def __init__(self, function: Callable[..., Any], held: dict[str, Tensor], dtype: torch.dtype) -> None:
        super().__init__()
        self.function, self.parameter = function, nn.Parameter(torch.zeros(1, dtype=dtype))
        for name, tensor in held.items():
            self.register_buffer(name, tensor)
        self.held = tuple(held)

    def forward(self, x: Tensor) -> Any:
        """Applies the function to [images, channels, rows, columns] and, by name, what is held."""
        return self.function(x, **{name: getattr(self, name) for name in self.held})


def followed(
    function: Callable[..., Any], x: Interval = X, *, dtype: torch.dtype = torch.float32, **held: Tensor
) -> tuple[Follower, list[Interval]]:
    """What is found of a function on images within bounds, and bounds on its results."""
    return follow(One(function, held, dtype).eval(), SIZE, len(x.low), x, count=IMAGES, memory={})


def bounds(function: Callable[..., Any], x: Interval = X, **options: Any) -> Interval:
    """Bounds on a function's one result."""
    follower, (found,) = followed(function, x, **options)
    assert not follower.problems
    return found


def reason(function: Callable[..., Any], x: Interval = X, **options: Any) -> str:
    """Why nothing is known of a function's result."""
    follower, found = followed(function, x, **options)
    assert not any(one.is_bounded for one in found)
    return follower.problems[0].reason


def assert_same(found: Interval, expected: Interval) -> None:
    """Compares bounds, to the last bit."""
    for name in ("low", "high", "error"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def rounded(exact: Interval, scale: Tensor, terms: int, **options: Any) -> Interval:
    """Bounds on what single precision makes of an exact result of so many roundings."""
    return SINGLE.rounded(exact, scale, terms, **{"same": False, **options})
