"""A side that is run again, on inputs near those of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ..programs.float64 import real
from ..programs.program import Program
from .drawn import can_draw
from .given import Inputs
from .nearby import Averaged, Call, Nearby, averaged, can_move, embeddings
from .sides import Side
from .units import Unit


@dataclass(frozen=True)
class Around:
    """A side and the inputs of the comparison.

    Attributes:
        side: The side that is run again.
        other: The name of the other one, whose operations are known.
        given: The inputs.
        count: The number of the side's outputs.
    """

    side: Side
    other: str
    given: Inputs
    count: int

    def averaged(
        self, program: Program, names: Sequence[str], unit: Unit, *, ratio: float, seed: int
    ) -> Averaged | str:
        """How much of the difference is the same on inputs nearby; or why the side cannot be run on such.

        Args:
            program: The other side's.
            names: Of the outputs.
            unit: The one that the side rounds in.
            ratio: The largest difference, in units of its typical rounding.
            seed: Of the moves and of the noise.
        """
        if self.side.recorded is not None:
            return f"{self.side.name} is recorded on these inputs alone"
        if self.count != len(names):
            return f"{self.side.name} has more outputs"
        is_moved = can_move(self.given) or self._has_embeddings(program)
        if not is_moved and not can_draw(program, self.given):
            return f"the inputs are no real numbers, nor tokens of several kinds that {self.other} embeds"
        found = averaged(program, self._call(names), self.given, unit, seed=seed, draws=not is_moved)
        return replace(found, ratio=ratio)

    def _call(self, names: Sequence[str]) -> Call:
        """Runs the side on inputs nearby, with outputs by these names."""

        def call(nearby: Nearby) -> dict[str, Tensor]:
            with self.side.shifted(nearby.shifts):
                found = [real(one) for one in self.side.run(nearby.given.clone(self.side.dtype)).values()]
            return dict(zip(names, found, strict=True))

        return call

    def _has_embeddings(self, program: Program) -> bool:
        """Whether the side embeds what is given in modules of the same names."""
        embedded = embeddings(program)
        return embedded is not None and bool(embedded) and self.side.has_modules(embedded)
