"""What a campaign checks, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....convert.engines import ENGINES
from ....convert.errors import SelectionError
from ..random_layers import DEFAULT_MAX_SIZE, DTYPES, RandomLayer, draw_layer

LARGEST_SIZE = 64  # pixels a side: the literal engine's memory grows with the fourth power


@dataclass(frozen=True)
class Settings:
    """What is checked, and how: the same settings and seed give the same layers and verdicts.

    Attributes:
        engines: Each is checked where it does not refuse.
        dtypes: Precisions to draw from.
        device: Where to compute.
        max_size: Largest rows and columns of an input, where the geometry accepts so small ones.

    Raises:
        SelectionError: There is no such engine or precision, or a size out of range.
    """

    engines: tuple[str, ...] = tuple(ENGINES)
    dtypes: tuple[str, ...] = DTYPES
    device: str = "cpu"
    max_size: int = DEFAULT_MAX_SIZE

    def __post_init__(self) -> None:
        for kind, given, known in (("engine", self.engines, tuple(ENGINES)), ("precision", self.dtypes, DTYPES)):
            unknown = [name for name in given if name not in known]
            if unknown or not given or len(set(given)) < len(given):
                raise SelectionError(f"each {kind} must be one of {', '.join(known)}, once; got {', '.join(given)}")
        if not 1 <= self.max_size <= LARGEST_SIZE:
            raise SelectionError(f"the largest size must be 1 to {LARGEST_SIZE}; got {self.max_size}")

    @classmethod
    def of(
        cls, engines: Sequence[str] | None, dtypes: Sequence[str] | None, *, device: str, max_size: int | None
    ) -> Settings:
        """The settings that a user asks for; what is None or empty is the default."""
        return cls(
            tuple(engines or ENGINES),
            tuple(str(dtype) for dtype in dtypes or DTYPES),
            device,
            DEFAULT_MAX_SIZE if max_size is None else max_size,
        )

    def layer(self, seed: int, index: int) -> RandomLayer:
        """Layer ``index`` of a seed."""
        return draw_layer(seed, index, dtypes=self.dtypes, max_size=self.max_size)
