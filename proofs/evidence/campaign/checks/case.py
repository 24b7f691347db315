"""What the checks of one layer share: each check asks it other questions, and nothing is made twice.

A layer that several checks use also remembers its tables from one to the next, as a layer of a network does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from .....convert import SelfAttention, attention_from_conv
from .....convert.spec import Convolution
from ...random_layers import RandomLayer
from .inputs import convolution, images

_NO_LIMIT = 2**62  # bytes: a campaign chooses the sizes of its inputs itself
_T = TypeVar("_T")


class Case:
    """A random layer, and what several of its checks need.

    Args:
        layer: The layer.
        engines: Engines to check, each where it does not refuse.
        device: Where to compute.
    """

    def __init__(self, layer: RandomLayer, engines: Sequence[str], device: torch.device) -> None:
        self.layer = layer
        self.engines = engines
        self.device = device
        self._made: dict[Hashable, Any] = {}

    @cached_property
    def conv(self) -> Convolution:
        """The convolution with normal numbers. No check changes it."""
        return convolution(self.layer, self.device)

    @cached_property
    def images(self) -> Tensor:
        """Its inputs with normal numbers, [batch, in_channels, *size]."""
        return images(self.layer, self.device)

    @property
    def alphas(self) -> tuple[float | None, float]:
        """Of the one-hot and the soft attention."""
        return None, self.layer.alpha

    def attention(self, alpha: float | None) -> SelfAttention:
        """The attention of ``conv``. No check changes it but for its engine, which it puts back."""
        return self.once(("attention", alpha), lambda: attention_of(self.conv, alpha))

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What ``make`` returns, made at the first call with a key."""
        if key not in self._made:
            self._made[key] = make()
        return cast(_T, self._made[key])


def attention_of(conv: Convolution, alpha: float | None = None) -> SelfAttention:
    """The attention of a convolution, with all the memory it asks for."""
    attention = attention_from_conv(conv, alpha=alpha)
    attention.memory_limit = _NO_LIMIT
    return attention
