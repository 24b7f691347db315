"""A side that is run again, on inputs near those of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..programs.float64 import real
from ..programs.program import Program
from .drawn import can_draw
from .given import Inputs
from .nearby import Call, Nearby, can_move, embeddings
from .sides import Side


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

    def call(self, program: Program, names: Sequence[str]) -> Call | str:
        """What runs the side on inputs nearby, with outputs by these names; or why that cannot be done.

        Args:
            program: The other side's.
            names: Of the outputs.
        """
        if self.side.recorded is not None:
            return f"{self.side.name} is recorded on these inputs alone"
        if self.count != len(names):
            return f"{self.side.name} has more outputs"
        if not can_move(self.given) and not self._has_embeddings(program) and not self.draws(program):
            return f"the inputs are no real numbers, nor tokens of several kinds that {self.other} embeds"

        def call(nearby: Nearby) -> dict[str, Tensor]:
            with self.side.shifted(nearby.shifts):
                found = [real(one) for one in self.side.run(nearby.given.clone(self.side.dtype)).values()]
            return dict(zip(names, found, strict=True))

        return call

    def draws(self, program: Program) -> bool:
        """Whether tokens are drawn again, as neither they nor what they are embedded as can be moved."""
        return not can_move(self.given) and not self._has_embeddings(program) and can_draw(program, self.given)

    def _has_embeddings(self, program: Program) -> bool:
        """Whether the side embeds what is given in modules of the same names."""
        embedded = embeddings(program)
        return embedded is not None and bool(embedded) and self.side.has_modules(embedded)
