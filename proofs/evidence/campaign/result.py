"""What a campaign found: as data, and as tables and sentences."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Self

from ....convert.plain import from_plain
from ...terminal.table import Table
from .settings import Settings
from .tally import Extreme, Failure, Tally

COMMANDS = ("soak", "verify")  # what JSON calls it: the long form, and that of ``verify --random N``
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

    def __str__(self) -> str:
        following = f"layers {self.first}, {self.first + self.step}, ..."
        return f"Seed {self.seed}, {following if self.step > 1 else f'layers from {self.first}'}"


@dataclass(frozen=True)
class Campaign:
    """What a campaign found.

    Attributes:
        settings: How it checked.
        parts: Which layers.
        tally: What it found.
        seconds: How long it took; of added campaigns, together.
        stopped: Why it did not check every layer it was asked for, or None.
        runs: The machine and the day of each run.
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
    def exit_code(self) -> int:
        """Of the command line: interrupted, violated, or fine."""
        return 130 if self.stopped == INTERRUPTED else int(self.tally.violations > 0)

    def to_json(self) -> dict[str, Any]:
        """The campaign as plain data, with the throughput."""
        return {"campaign": asdict(self) | {"layers_per_second": self.layers_per_second}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads the value of "campaign" in what ``to_json`` wrote.

        Raises:
            ValueError: It is something else.
            SelectionError: Its settings name an engine or precision that this program lacks.
        """
        return from_plain(cls, {name: value for name, value in data.items() if name != "layers_per_second"})

    def shown(self) -> list[Table | str]:
        """How many layers had each option, what each check found, the failures, and the verdict."""
        options = sorted(self.tally.options.items(), key=lambda item: (-item[1], item[0]))
        checks = (
            (name, check.comparisons, check.violations, _ratio(check.worst), _where(check.worst))
            for name, check in self.tally.checks.items()
        )
        header = ("check, attention", "comparisons", "violations", "largest error / bound", "in layer")
        return [
            Table(("layers with", "count"), tuple(options)),
            Table(header, tuple(checks)),
            *self._failures(),
            *self._verdict(),
        ]

    def _failures(self) -> list[str]:
        """The layers that are named, and how to check the first of them again."""
        tally = self.tally
        if not tally.failures:
            return []
        lines = [f"layer {failure.index} of seed {failure.seed}: {failure.what}" for failure in tally.failures]
        if tally.failed > len(tally.failures):
            lines.append(f"and {tally.failed - len(tally.failures):,} more layers")
        return [*lines, f"The first one again: {self._replay(tally.failures[0])}"]

    def _replay(self, failure: Failure) -> str:
        """The command that checks one layer: it is a shard of its own, in a campaign that ends with it."""
        seed, index, usual = failure.seed, failure.index, Settings()
        parts = [f"conv2attn soak --seed {seed} --layers {index + 1} --shard {index}/{index + 1}"]
        for option, own, default in (
            ("--engine", self.settings.engines, usual.engines),
            ("--dtype", self.settings.dtypes, usual.dtypes),
        ):
            parts += [f"{option} {name}" for name in own if own != default]
        if self.settings.device != usual.device:
            parts.append(f"--device {self.settings.device}")
        if self.settings.max_size != usual.max_size:
            parts.append(f"--max-size {self.settings.max_size}")
        return " ".join(parts)

    def _verdict(self) -> list[str]:
        """The result in a few sentences, a line each."""
        tally, worst = self.tally, self.tally.worst
        found = f"{tally.violations:,} violations in {tally.failed:,} layers" if tally.violations else "no violation"
        cut = "" if self.stopped is None else f" ({self.stopped})"
        nearest = [f"Largest error / bound: {_ratio(worst)}, layer {worst.index}: {worst.layer}."]
        return [
            f"{tally.layers:,} layers{cut}, {tally.comparisons:,} comparisons: {found}.",
            f"{self.seconds:.1f} s, {self.layers_per_second:.1f} layers/s.",
            *(nearest if worst.ratio > 0 else []),
            "; ".join((*self.runs, *(f"{name} {version}" for name, version in self.versions.items()))) + ".",
            *map(str, self.parts),
        ]


def _ratio(extreme: Extreme) -> str:
    return "not equal" if extreme.ratio == sys.float_info.max else f"{extreme.ratio:.4g}"


def _where(extreme: Extreme) -> str:
    return "" if extreme.index < 0 else f"{extreme.index}: {extreme.what}"
