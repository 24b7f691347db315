"""A kernel tap that is zero needs no head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sympy import QQ

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ..common.small_convolutions import Case, Pixel, convolution, symbols
from ..theorem.assembly import attention

SPARSE = {
    Case((3, 3), pads=(1, 1, 1, 1)): ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1)),  # a cross
    Case((2, 3), stride=(1, 2), channels=(2, 2), size=(3, 4)): ((0, 0), (1, 2)),
}


def sparse_failures(*, dropped: Callable[[Sequence[Pixel]], Sequence[Pixel]] = lambda kept: kept) -> list[str]:
    """Whether heads at the non-zero taps alone give the convolution, with symbols for all other numbers."""
    failures = []
    for case, kept in SPARSE.items():
        s = symbols(case, QQ)
        for index in s.weight:
            if index[2:] not in kept:
                s.weight[index] = s.zero
        expected, found = convolution(case, s), attention(case, s, taps=dropped(kept))
        wrong = [index for index, polynomial in expected.items() if polynomial - found[index] != 0]
        failures += [f"{case}: output {index} differs without the heads of zero taps" for index in wrong[:1]]
    return failures


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_zero_taps()]


def _zero_taps() -> Claim:
    return Claim(
        name="zero-taps",
        title="A zero tap needs no head",
        statement=Formula(
            r"\#\{\Delta : W_\Delta \ne 0\} \text{ one-hot heads express the convolution, and no fewer do}",
            "As many one-hot heads as there are taps with W_Delta != 0 express the convolution, and no fewer do.",
        ),
        assumptions=("As for `head-count`; every head attends to one offset.",),
        steps=(
            Step(
                Formula(
                    r"\sum_{h} W_{\Delta_h} x_{q + \Delta_h} = \sum_{\Delta:\, W_\Delta \ne 0} W_\Delta x_{q + \Delta}",
                    "sum_h W_{Delta_h} x_{q + Delta_h} = sum over Delta with W_Delta != 0 of W_Delta x_{q + Delta}",
                ),
                "The head of a zero tap adds 0: leave it out.",
            ),
            Step(
                Formula(
                    r"\sum_{h:\, \Delta_h = \Delta} W_h = W_\Delta \ne 0",
                    "the sum of W_h over the heads at Delta is W_Delta != 0",
                ),
                "No fewer: the $P_Delta$ are independent, so each non-zero tap has a head of its own.",
            ),
        ),
        checks=(
            Check(
                "the heads of the other taps give the same polynomial",
                Kind.INSTANCES,
                sparse_failures,
                cases=tuple(f"{case}, taps {', '.join(map(str, kept))}" for case, kept in SPARSE.items()),
            ),
        ),
        source="new",
        tests=("proofs.claims.test_sharper.test_a_false_variant_is_rejected",),
    )
