"""Settings of a campaign, and its shards."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....convert.engines import ENGINES
from ....convert.errors import SelectionError
from ..random_layers import DEFAULT_MAX_SIZE, DTYPES, RandomLayer, draw_layer

PLACEHOLDER = "{shard}"
LARGEST_SIZE = 64  # pixels a side: the literal engine's memory grows with the fourth power


@dataclass(frozen=True)
class Settings:
    """Settings of a campaign: the same settings and seed give the same layers and verdicts.

    Raises:
        SelectionError: There is no such engine or precision, or a size out of range.
    """

    engines: tuple[str, ...] = tuple(ENGINES)  # engines to check, each where it does not refuse
    dtypes: tuple[str, ...] = DTYPES  # precisions to draw from
    device: str = "cpu"  # where to compute
    max_size: int = DEFAULT_MAX_SIZE  # largest rows and columns of an input, where the geometry accepts so small ones

    def __post_init__(self) -> None:
        for kind, given, known in (("engine", self.engines, tuple(ENGINES)), ("precision", self.dtypes, DTYPES)):
            if not given or not set(given) <= set(known) or len(set(given)) < len(given):
                raise SelectionError(f"each {kind} must be one of {', '.join(known)}, once; got {', '.join(given)}")
        if not 1 <= self.max_size <= LARGEST_SIZE:
            raise SelectionError(f"the largest size must be 1 to {LARGEST_SIZE}; got {self.max_size}")

    @classmethod
    def of(cls, engines: Sequence[str] | None, dtypes: Sequence[str] | None, **others: Any) -> Settings:
        """The settings that a user asks for; no engines and no precisions mean all."""
        return cls(tuple(engines or ENGINES), tuple(map(str, dtypes or DTYPES)), **others)

    def layer(self, seed: int, index: int) -> RandomLayer:
        """Layer ``index`` of a seed."""
        return draw_layer(seed, index, dtypes=self.dtypes, max_size=self.max_size)


@dataclass(frozen=True)
class Shard:
    """One of ``count`` shards: the layers whose index is ``number`` modulo ``count``.

    Raises:
        SelectionError: There is no such shard.
    """

    number: int = 0  # from 0 to count - 1
    count: int = 1  # number of shards of the campaign

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise SelectionError(f"a shard is i/n with 0 <= i < n; got {self}")

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """The shard "i/n"; without a text, RANK of WORLD_SIZE, as torchrun sets them, or else the whole campaign.

        Raises:
            SelectionError: The text does not name a shard.
        """
        if text is None:
            known = "RANK" in os.environ and "WORLD_SIZE" in os.environ
            text = f"{os.environ['RANK']}/{os.environ['WORLD_SIZE']}" if known else "0/1"
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None:
            raise SelectionError(f"a shard is i/n with 0 <= i < n, like 0/4; got {text!r}")
        return cls(int(match[1]), int(match[2]))

    def own_file(self, path: Path) -> Path:
        """The file of its result: "{shard}" in the name stands for the shard, like 0-of-4.

        Raises:
            SelectionError: Several shards would write the same file.
        """
        if self.count > 1 and PLACEHOLDER not in path.name:
            raise SelectionError(f"{path} would be written by {self.count} processes; put {PLACEHOLDER} into its name")
        return path.with_name(path.name.replace(PLACEHOLDER, f"{self.number}-of-{self.count}"))

    def indices(self, layers: int) -> range:
        """Indices of its layers, among the first ``layers`` of a seed."""
        return range(self.number, layers, self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
