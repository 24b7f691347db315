"""Justifies ``left_out`` in ``convert/bounds/rounding.py``: keys that weigh next to nothing may be left out."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, product

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, not_nonnegative
from ...prover.formula import fill

FIRST, SECOND = sympy.symbols("e_1 e_2", nonnegative=True)
LENGTHS = (1, 4, 7)
RATIOS = (Fraction(1, 2), Fraction(1, 8))  # q = exp(-alpha)
UNITS = (Fraction(1, 2), Fraction(1, 64), Fraction(1, 4096))


def both_axes(first: Expr, second: Expr) -> Expr:
    """1 - (1 - e_1)(1 - e_2): what a product of two softmaxes leaves out."""
    return 1 - (1 - first) * (1 - second)


def axes_failures(*, bound: Callable[[Expr, Expr], Expr] = lambda e, f: e + f) -> list[str]:
    """Whether what two axes leave out weighs no more than the bound."""
    return not_nonnegative(bound(FIRST, SECOND) - both_axes(FIRST, SECOND), "the bound minus what is left out")


def kept(probabilities: list[Fraction], most: Fraction) -> list[Fraction]:
    """The probabilities with zeros for the first and the last of them, as many as weigh no more than ``most``."""
    before = accumulate(probabilities)
    after = list(accumulate(reversed(probabilities)))[::-1]
    return [p if b > most and a > most else Fraction() for p, b, a in zip(probabilities, before, after, strict=True)]


def sum_failures(*, share: Fraction = Fraction(1, 2), factor: Fraction = Fraction(1)) -> list[str]:
    """Whether sums without the far keys differ by no more than factor u max |x|, for pixels of either sign.

    Args:
        share: Of u, what may be left out on either side.
        factor: As above.
    """
    failures = []
    for length, q, unit in product(LENGTHS, RATIOS, UNITS):
        for target in range(length):
            weights = [q ** ((k - target) ** 2) for k in range(length)]
            probabilities = [weight / sum(weights) for weight in weights]
            near = kept(probabilities, share * unit)
            for x in product((1, -1), repeat=length):
                lost = abs(
                    sum(((p - n) * pixel for p, n, pixel in zip(probabilities, near, x, strict=True)), Fraction())
                )
                if lost > factor * unit:
                    failures.append(f"{length} keys, target {target}, q = {q}, u = {unit}: {lost} is lost")
    return failures[:5]


def claims() -> list[Claim]:
    """The claim of this file."""
    return [
        Claim(
            name="left-out-keys",
            title="Keys that weigh next to nothing may be left out",
            statement=fill(
                r"\Bigl|\sum_{k \text{ kept}} p_k x_k - \sum_k p_k x_k\Bigr| \le \bigl($axes\bigr) \max_k |x_k|"
                r" \le ($FIRST + $SECOND) \max_k |x_k|",
                "|sum over kept k of p_k x_k - sum_k p_k x_k| <= ($axes) max |x_k| <= ($FIRST + $SECOND) max |x_k|, "
                "where the softmax along axis i leaves out keys that weigh e_i together; p_k is the product of both",
                axes=both_axes(FIRST, SECOND),
                FIRST=FIRST,
                SECOND=SECOND,
            ),
            assumptions=(
                "The $p_k$ are a softmax over all keys, so they are not negative and sum to 1; kept ones stay as "
                "they are.",
                "Along each axis the first keys and the last ones are left out, as many as weigh no more than $u / 2$ "
                "on either side, after the scale that the border asks for: $e_i <= u$.",
            ),
            steps=(
                Step(
                    Formula(
                        r"\Bigl|\sum_{k \text{ left out}} p_k x_k\Bigr| \le \max_k |x_k| \sum_{k \text{ left out}} p_k",
                        "|sum over left out k of p_k x_k| <= max |x_k| times the sum of these p_k",
                    ),
                    "The triangle inequality; the $p_k$ are not negative.",
                ),
                Step(
                    Formula(
                        r"\sum_{k \text{ kept}} p_k = (1 - e_1)(1 - e_2)",
                        "the sum over kept k of p_k = (1 - e_1)(1 - e_2)",
                    ),
                    "By the claim `separable-softmax` the softmax is a product; kept are the keys that both axes keep. "
                    "The passes of one axis after the other leave out the same.",
                ),
            ),
            checks=(
                Check("two axes leave out no more than both together", Kind.SYMBOLIC, axes_failures),
                Check(
                    "sums without the far keys differ by at most $u max |x|$, in exact arithmetic",
                    Kind.INSTANCES,
                    sum_failures,
                    cases=tuple(
                        f"{length} keys, every target and sign, $q = {q}$, $u = {unit}$"
                        for length, q, unit in product(LENGTHS, RATIOS, UNITS)
                    ),
                ),
            ),
            justifies=(
                "conv2attn.convert.bounds.rounding.left_out",
                "conv2attn.convert.engines.axes.without_far_keys",
            ),
            tests=(
                "convert.engines.test_stencil.test_the_taps_that_are_kept_are_the_fewest_whose_rest_weighs_no_more_than_may_be_left_out",
                "convert.engines.test_axes.test_far_keys_are_those_that_weigh_less_than_half_of_what_may_be_left_out_on_their_side",
            ),
        )
    ]
