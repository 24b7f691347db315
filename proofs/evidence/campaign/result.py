"""What a campaign found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Self

from ....convert.plain import from_plain
from .settings import Settings
from .tally import Tally

INTERRUPTED, OUT_OF_TIME = "interrupted", "out of time"
_PACKAGES = ("conv2attn", "torch")


@dataclass(frozen=True, order=True)
class Part:
    """Layers that one run checked: ``first``, ``first + step``, and so on, ``count`` in all.

    Attributes:
        seed: The seed that the layers are drawn from.
        first: Index of the first one, the number of the shard.
        step: The number of shards.
        count: How many.

    Raises:
        ValueError: A number is negative, or the step is not positive.
    """

    seed: int
    first: int
    step: int
    count: int

    def __post_init__(self) -> None:
        if min(self.seed, self.first, self.step - 1, self.count) < 0:
            raise ValueError(f"seed, first and count must be at least 0, and step at least 1; got {self}")

    @property
    def indices(self) -> range:
        """Indices of the layers, growing."""
        return range(self.first, self.first + self.step * self.count, self.step)


@dataclass(frozen=True)
class Campaign:
    """What a campaign found.

    Attributes:
        settings: How it checked.
        parts: Which layers.
        tally: What it found.
        seconds: How long it took; of added campaigns, together.
        stopped: Why it did not check every layer it was asked for, or None.
        runs: Of each run, the day it ended (in UTC) and the machine.
        versions: The version of conv2attn and of torch, by package.
    """

    settings: Settings
    parts: tuple[Part, ...]
    tally: Tally
    seconds: float
    stopped: str | None
    runs: tuple[str, ...]
    versions: dict[str, str] = field(default_factory=lambda: {name: metadata.version(name) for name in _PACKAGES})

    @property
    def layers_per_second(self) -> float:
        """The throughput."""
        return self.tally.layers / self.seconds if self.seconds else 0.0

    @property
    def is_clean(self) -> bool:
        """Whether every comparison held."""
        return self.tally.violations == 0

    @property
    def exit_code(self) -> int:
        """Of the command line: interrupted, violated, or fine."""
        return 130 if self.stopped == INTERRUPTED else int(not self.is_clean)

    def to_json(self) -> dict[str, Any]:
        """The campaign as plain data, with the throughput."""
        return asdict(self) | {"layers_per_second": self.layers_per_second}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` wrote.

        Raises:
            ValueError: It is something else.
            SelectionError: Its settings name an engine or precision that this program lacks.
        """
        return from_plain(cls, {name: value for name, value in data.items() if name != "layers_per_second"})
