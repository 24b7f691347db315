"""Tensors without values, each with bounds on the values that it would have in the network.

A tensor on the meta device has a shape and no values. Which tensors share memory there need not be what happens in the
network: whether ``contiguous`` or ``reshape`` copies depends on the memory format. So tensors that may share memory are
kept together, and a write into one of them makes the others unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx.node import map_aggregate

from .interval import Interval


@dataclass
class Tracked:
    """A tensor of the followed network.

    Attributes:
        fake: A tensor of its shape and dtype on the meta device.
        interval: Bounds on its values.
        real: Its values, of a parameter, a buffer or a constant.
        lost: Why its values are no longer bounded, or None.
        outlives: Whether it is a parameter, a buffer or a constant, whose values another tensor holds.
        family: The tensors that may share its memory, itself among them.
    """

    fake: Tensor
    interval: Interval
    real: Tensor | None = None
    lost: str | None = None
    outlives: bool = False
    family: list[Tracked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.family = [self]
        self.seen()

    def seen(self) -> None:
        """Remembers how the tensor is now."""
        self._state = _state(self.fake)

    @property
    def has_changed(self) -> bool:
        """Whether the tensor was written to, or laid out anew, since it was last seen."""
        return self._state != _state(self.fake)

    def joins(self, other: Tracked) -> None:
        """Notes that both may share memory."""
        if self.family is not other.family:
            for member in self.family:
                other.family.append(member)
                member.family = other.family

    def lose(self, why: str) -> None:
        """Forgets the values."""
        self.interval, self.real, self.lost = Interval.unknown(), None, why
        self.seen()

    def changed(self, interval: Interval) -> bool:
        """Notes that the tensor was written to.

        Returns:
            Whether a parameter, a buffer or a constant may have changed with it.
        """
        for member in self.family:
            if member is not self:
                member.lose("it reads a tensor whose memory was written to under another name")
        self.interval, self.real, self.lost = interval, None, None
        self.seen()
        return any(member.outlives for member in self.family)


def constant(real: Tensor, fake: Tensor | None = None) -> Tracked:
    """A tensor whose values are known, and the same in both networks."""
    if fake is None:
        fake = torch.empty_like(real, device="meta")
    real = real.detach()
    interval = Interval.unknown()
    if real.numel() and not real.is_complex() and bool(real.isfinite().all()):
        interval = Interval.of(float(real.min()), float(real.max()))
    lost = None if interval.is_bounded else "its values are not finite"
    return Tracked(fake, interval, real, lost, outlives=True)


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in lists, tuples, dictionaries and slices."""
    return found_in(values, Tensor)


def tracked_in(values: Any) -> list[Tracked]:
    """The tracked tensors in lists, tuples, dictionaries and slices."""
    return found_in(values, Tracked)


def found_in(values: Any, kind: type) -> list[Any]:
    """What is of a kind in lists, tuples, dictionaries and slices."""
    found: list[Any] = []
    replaced(values, kind, found.append)
    return found


def replaced(values: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """The same lists, tuples, dictionaries and slices, with what is of a kind replaced."""
    return map_aggregate(values, lambda value: by(value) if isinstance(value, kind) else value)


def shares_memory(a: Tensor, tensors: Iterable[Tensor]) -> bool:
    """Whether a tensor on the meta device is a view of one of the others."""
    storage = a.untyped_storage()._cdata
    return any(b.untyped_storage()._cdata == storage for b in tensors)


def _state(fake: Tensor) -> tuple[object, ...]:
    layout = fake.shape, fake.stride(), fake.storage_offset(), fake.dtype, fake.untyped_storage()._cdata
    return (fake._version, *layout)
