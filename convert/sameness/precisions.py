"""The precision in which each side computes, and in which noise stands for its rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, fx

from ..programs.noise import TF32, UNITS, Precision
from ..programs.program import Program
from .both import narrowing
from .sides import Side


@dataclass(frozen=True)
class Precisions:
    """The precisions of two sides.

    Attributes:
        sides: A and B.
        outputs: Theirs.
        graphs: Their programs, where they are known.
        inputs: The tensors of the inputs.
        held_to: Precision that both are held to, or None.
    """

    sides: tuple[Side, Side]
    outputs: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]
    graphs: tuple[Program | None, Program | None]
    inputs: Sequence[Tensor]
    held_to: torch.dtype | None

    def of(self, place: int, exact: int) -> Precision:
        """A side's precision: its own where it differs from the graph's; factors are rounded where weights were.

        Args:
            place: The side's.
            exact: That of the side whose graph runs.
        """
        if self.held_to is not None:
            return Precision(self.held_to)
        theirs, own = self.declared(exact), self.declared(place)
        factors = _tf32(self.inputs)
        if theirs == own:
            is_wider = UNITS.get(self.sides[exact].dtype or theirs, 1.0) < UNITS[theirs]
            is_other = exact in self.narrowing or (is_wider and place != exact)
            return Precision(theirs if is_other else None, factors)
        return Precision(own, UNITS[own] if UNITS[own] > UNITS[theirs] else factors)

    @cached_property
    def narrowing(self) -> dict[int, fx.Node]:
        """The side that alone rounds to fewer digits than it declares, and where: that is no rounding of both."""
        known = {place: graph for place, graph in enumerate(self.graphs) if graph is not None}
        found = {place: narrowing(graph, self.declared(place)) for place, graph in known.items()}
        alone = {place: node for place, node in found.items() if node is not None}
        return alone if len(alone) == 1 and len(known) == 2 else {}

    def declared(self, place: int) -> torch.dtype:
        """The precision of a side: that of its outputs or of its parameters, whichever is narrower."""
        types = {one.dtype for one in self.outputs[place].values() if one.dtype in UNITS}
        own = self.sides[place].dtype
        stored = [*(types if len(types) == 1 else ()), *([own] if own in UNITS else [])]
        return max(stored, key=lambda one: UNITS[one], default=torch.float32)


def _tf32(tensors: Sequence[Tensor]) -> float:
    """The unit at which factors are rounded on the device: TF32's, where it is allowed on a GPU."""
    on_gpu = any(one.is_cuda for one in tensors)
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return TF32 if on_gpu and allowed else 0.0
