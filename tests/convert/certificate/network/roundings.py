"""Roundings of torch's operations beside those that the rules of a network's certificate claim.

Each drawn call (``draws.py``) is computed in its precision and, on the same numbers, in float64. The rule
bounds the difference of each element; no element may differ by more. Float64 itself is not compared: the rules compute
in float64, and move their bounds out by 2^-30, which is more than float64 rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from conv2attn.convert.certificate.network.interval import Interval, UnboundedError
from tests.convert.certificate.network.draws import ROWS, DrawnCall, draw

_MOST_REFUSED = 20  # calls for each that has a bound; beyond, the draws are of no use


@dataclass(frozen=True)
class Comparison:
    """One operation in one precision.

    Attributes:
        draws: Cases compared, each with shapes, attributes and values of its own kind.
        violations: Cases of which an element differs by more than is claimed, or is no number.
        largest: Largest difference, as a multiple of what is claimed for its element.
        refused: Calls left out because the rule gives no bound.
        first: The number of the first call with a violation, for ``draw``.
    """

    draws: int = 0
    violations: int = 0
    largest: float = 0.0
    refused: int = 0
    first: int | None = None

    def with_ratios(self, ratios: Tensor, index: int) -> Comparison:
        """The comparison with one more call, of ratios [cases]."""
        wrong = int((~(ratios <= 1)).sum())
        first = index if wrong and self.first is None else self.first
        largest = max(self.largest, float(ratios.nan_to_num(torch.inf).max()))
        return Comparison(self.draws + len(ratios), self.violations + wrong, largest, self.refused, first)


def compare_operation(name: str, dtype: torch.dtype, draws: int, *, seed: int = 0, rows: int = ROWS) -> Comparison:
    """Compares at least so many draws of an operation.

    Args:
        name: One of ``DRAWS``.
        dtype: Precision of the results.
        draws: Number of cases.
        seed: Seed of the draws.
        rows: Cases that share shapes and attributes.

    Raises:
        RuntimeError: The rule refuses nearly everything that is drawn.
    """
    found = Comparison()
    for index in count():
        if found.draws >= draws:
            return found
        try:
            ratios = ratios_of(draw(name, dtype, index, seed=seed, rows=rows))
        except UnboundedError:
            found = Comparison(found.draws, found.violations, found.largest, found.refused + 1, found.first)
            if found.refused > _MOST_REFUSED * (1 + found.draws / rows):
                raise RuntimeError(f"{name} in {dtype} is refused {found.refused} times of {index + 1}") from None
            continue
        found = found.with_ratios(ratios, index)
    raise AssertionError("unreachable")


def ratios_of(drawn: DrawnCall) -> Tensor:
    """Largest difference of each case from float64, as a multiple of what is claimed: [rows].

    Raises:
        UnboundedError: The rule gives no bound.
    """
    operation, points = drawn.operation, [Interval.point(x) for x in drawn.inputs]
    # Both programs of a certificate may err by the rounding.
    claimed = operation.bound(points, drawn.dtype, repeatable=False).error / 2
    exact = operation.run([x.double() for x in drawn.inputs], drawn.dtype)
    apart = (operation.run(drawn.inputs).double() - exact).abs()
    return torch.where(apart == 0, 0.0, apart / claimed).reshape(drawn.rows, -1).amax(1)
