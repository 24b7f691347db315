"""A kernel tap that is zero needs no head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sympy import QQ

from ...prover.claim import Check, Checks, Status, claim
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


@claim(
    status=Status.INSTANCES,
    scope="As for `head-count`, but every head attends to one offset alone.",
    tests=("proofs/claims/test_false_variants.py: test_every_false_variant_is_rejected",),
    is_lemma=True,
)
def zero_taps() -> Checks:
    r"""A zero tap needs no head.

    As many one-hot heads as there are taps with $W_\Delta \ne 0$ express the convolution, and no fewer do. The head of
    a zero tap adds 0, so it can be left out; and since the shifts $P_\Delta$ are independent, each tap with
    $W_\Delta \ne 0$ has a head of its own.
    """
    cases = f"{len(SPARSE)} convolutions"
    yield Check("the heads of the other taps give the same polynomial", sparse_failures, cases)
