"""Engines that round otherwise than torch, emulated: short factors of products, and sums rounded one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_FACTORS = {"convolution": (0, 1), "mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2)}
BITS = 16  # of float32 that bfloat16 has not
X = torch.linspace(-9, 9, 3 * 16 * 16).sin().view(1, 3, 16, 16)


def network(eps: float = 1e-5) -> nn.Module:
    torch.manual_seed(0)
    blocks = [(nn.Conv2d(a, 16, 3, padding=1), nn.GroupNorm(4, 16, eps), nn.GELU()) for a in (3, 16, 16)]
    return nn.Sequential(*(one for block in blocks for one in block), nn.Flatten(), nn.Linear(4096, 10)).eval()


class RoundedFactors(TorchDispatchMode):
    """Products of factors that are rounded to so many binary digits, with sums in float32.

    Args:
        digits: Binary digits.
        has_weights: Whether second factors are rounded, too.
    """

    def __init__(self, digits: int, *, has_weights: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._digits, self._has_weights = digits, has_weights

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, of rounded factors."""
        places: tuple[int, ...] = _FACTORS.get(func._schema.name.split("::")[1], ())
        places = places if self._has_weights else places[:1]
        given = [self.rounded(one) if place in places else one for place, one in enumerate(args)]
        return func(*given, **(kwargs or {}))

    def rounded(self, x: Tensor) -> Tensor:
        """Numbers to nearest."""
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2.0**self._digits).round() / 2.0**self._digits, exponent)


def _cut(x: Tensor) -> Tensor:
    """Towards 0."""
    return (x.view(torch.int32) & -(1 << BITS)).view(torch.float32)


def _away(x: Tensor) -> Tensor:
    """Away from 0."""
    cut = _cut(x)
    return torch.where(cut == x, cut, (cut.view(torch.int32) + (1 << BITS)).view(torch.float32))


def _ties_away(x: Tensor) -> Tensor:
    """To nearest, ties away from 0."""
    return _cut((x.view(torch.int32) + (1 << (BITS - 1))).view(torch.float32))


def _stochastic(x: Tensor) -> Tensor:
    """Up or down by chance, right on the mean; the same chance in every run."""
    drawn = torch.randint(0, 1 << BITS, x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.int32)
    return _cut((x.view(torch.int32) + drawn).view(torch.float32))


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda x: x.bfloat16().float(),
    "cut": _cut,
    "away from 0": _away,
    "up": lambda x: torch.where(x > 0, _away(x), _cut(x)),
    "floor": lambda x: torch.where(x > 0, _cut(x), _away(x)),
    "ties away": _ties_away,
    "stochastic": _stochastic,
}
