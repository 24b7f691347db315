"""Justifies ``left_out`` in ``convert/bounds/rounding.py``: keys that weigh next to nothing may be left out."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, product

import sympy

from ...prover.checks import Expr, not_nonnegative
from ...prover.claim import Check, Checks, Status, claim

FIRST, SECOND = sympy.symbols("e_1 e_2", nonnegative=True)
LOST = 1 - (1 - FIRST) * (1 - SECOND)  # what a product of two softmaxes leaves out
LENGTHS = (1, 4, 7)
RATIOS = (Fraction(1, 2), Fraction(1, 8))  # q = exp(-alpha)
UNITS = (Fraction(1, 2), Fraction(1, 64), Fraction(1, 4096))


def axes_failures(*, bound: Expr = FIRST + SECOND) -> list[str]:
    """Whether what two axes leave out weighs no more than the bound."""
    return not_nonnegative(bound - LOST, "the bound minus what is left out")


def kept(probabilities: list[Fraction], most: Fraction) -> list[Fraction]:
    """The probabilities with zeros for the first and the last of them, as many as weigh no more than ``most``."""
    before = accumulate(probabilities)
    after = list(accumulate(reversed(probabilities)))[::-1]
    return [p if b > most and a > most else Fraction() for p, b, a in zip(probabilities, before, after, strict=True)]


def sum_failures(*, share: Fraction = Fraction(1, 2), factor: Fraction = Fraction(1)) -> list[str]:
    """Whether sums without the far keys, ``share`` of u on either side, differ by at most factor u max |x|.

    They differ most where all pixels have the same sign.
    """
    failures = []
    for length, q, unit in product(LENGTHS, RATIOS, UNITS):
        for target in range(length):
            weights = [q ** ((k - target) ** 2) for k in range(length)]
            probabilities = [weight / sum(weights) for weight in weights]
            lost = 1 - sum(kept(probabilities, share * unit))
            if lost > factor * unit:
                failures.append(f"{length} keys, target {target}, q = {q}, u = {unit}: {lost} is lost")
    return failures[:5]


@claim(
    status=Status.INSTANCES,
    scope=r"The $p_k$ are a softmax over the keys of two axes, computed exactly; kept ones stay as they are. Along "
    r"each axis the first keys and the last ones are left out, as many as weigh at most $u / 2$ on either side, "
    r"after the scale that the border asks for. So axis $i$ leaves out keys that weigh $e_i \le u$ together.",
    justifies=(
        "convert/bounds/rounding.py: left_out",
        "convert/engines/axes.py: without_far_keys",
    ),
    tests=(
        "convert/engines/test_stencil.py: "
        "test_the_taps_that_are_kept_are_the_fewest_whose_rest_weighs_no_more_than_may_be_left_out",
        "convert/engines/test_axes.py: "
        "test_far_keys_are_those_that_weigh_less_than_half_of_what_may_be_left_out_on_their_side",
    ),
    is_lemma=True,
)
def left_out_keys() -> Checks:
    r"""Keys that weigh next to nothing may be left out.

    ```math
    \Bigl|\sum_{k \text{ kept}} p_k x_k - \sum_k p_k x_k\Bigr|
    \le {=LOST} \max_k |x_k| \le {=FIRST + SECOND} \max_k |x_k| .
    ```

    By `separable-softmax` the kept keys, those that both axes keep, weigh ${=1 - LOST}$ together, in one sum over both
    axes or in one after the other; the $p_k$ that are left out are not negative.
    """
    lengths, ratios, units = (", ".join(map(str, each)) for each in (LENGTHS, RATIOS, UNITS))
    yield Check("two axes leave out no more than both together", axes_failures)
    yield Check(
        "sums without the far keys along one axis differ by at most $u$ times the largest pixel",
        sum_failures,
        f"{lengths} keys, every target, $q = {ratios}$, $u = {units}$",
    )
