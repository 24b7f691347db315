"""Which layers a run checks: those whose index is congruent to i modulo n, so that n runs share a campaign."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....convert.errors import SelectionError

PLACEHOLDER = "{shard}"


@dataclass(frozen=True)
class Shard:
    """One of ``count`` shards.

    Attributes:
        number: From 0 to count - 1.
        count: How many shards the campaign has.

    Raises:
        SelectionError: There is no such shard.
    """

    number: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise SelectionError(f"a shard is i/n with 0 <= i < n; got {self}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads "i/n".

        Raises:
            SelectionError: The text does not name a shard.
        """
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None:
            raise SelectionError(f"a shard is i/n with 0 <= i < n, like 0/4; got {text!r}")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def choose(cls, text: str | None) -> Shard:
        """The shard that a user asks for, or that the environment names."""
        return cls.from_environment() if text is None else cls.parse(text)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Shard:
        """RANK of WORLD_SIZE, as torchrun sets them; the whole campaign where they are not set.

        Raises:
            SelectionError: They are set to something else.
        """
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()
        return cls.parse(f"{environment['RANK']}/{environment['WORLD_SIZE']}")

    @classmethod
    def own_file(cls, path: Path | None, text: str | None) -> Path | None:
        """The file of a shard's result: "{shard}" in its name stands for the shard, like 0-of-4.

        Raises:
            SelectionError: The environment starts several shards, and all would write the same file.
        """
        shard = cls.choose(text)
        if path is None or PLACEHOLDER not in path.name:
            if path is not None and text is None and shard.count > 1:
                count = shard.count
                raise SelectionError(f"{path} would be written by {count} processes; put {PLACEHOLDER} into its name")
            return path
        return path.with_name(path.name.replace(PLACEHOLDER, f"{shard.number}-of-{shard.count}"))

    def indices(self, layers: int) -> range:
        """Indices of its layers, among the first ``layers`` of a seed."""
        return range(self.number, layers, self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
