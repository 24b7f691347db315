"""Justifies ``_accumulation`` in ``engines/rounding.py``: adding up all keys errs by a bound without their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product
from typing import Any

import sympy

from ...prover.decide import Expr, has_negative_coefficient
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill
from .rounding import added, round_to, shapes

PRECISION = 4
LEAVES = 6
QUARTER = sympy.Rational(1, 4)
NEAR, UNIT, ABSOLUTE, FAR, SHARE = sympy.symbols("n u A F b", positive=True)


def before_errors(near: Any, unit: Any, absolute: Any, far: Any) -> Any:
    """b A = (n - 1) u A + 2 F: what additions lose if partial sums are no larger than A."""
    return (near - 1) * unit * absolute + 2 * far


def solved(share: Any) -> Any:
    """b / (1 - b): with partial sums of up to A and all errors."""
    return share / (1 - share)


def addition_failures(
    *, precision: int = PRECISION, bound: Callable[[Fraction, Fraction, Fraction], Fraction] | None = None
) -> list[str]:
    """Whether a rounded addition errs by at most min(|a|, |b|, u |a + b|), for all pairs of short numbers."""
    unit, failures = Fraction(1, 2**precision), []
    significands = range(2 ** (precision - 1), 2**precision)
    allowed = bound or (lambda a, b, u: min(abs(a), abs(b), u * abs(a + b)))
    for m, n, shift, sign in product(significands, significands, range(precision + 3), (1, -1)):
        a, b = Fraction(m), sign * Fraction(n, 2**shift)
        error = abs(round_to(a + b, precision) - (a + b))
        if error > allowed(a, b, unit):
            failures.append(f"{a} + {b} errs by {error}")
    return failures[:5]


def joining_failures(*, leaves: int = LEAVES, joins: Callable[[int], int] = lambda near: near - 1) -> list[str]:
    """Whether, in every order, joins(n) additions join two partial sums that both hold some of n near terms."""
    failures = []
    for count in range(1, leaves + 1):
        for shape, chosen in product(shapes(count), product((False, True), repeat=count)):
            if not any(chosen):
                continue
            _, found = _joins(shape, iter(chosen))
            if found != joins(sum(chosen)):
                failures.append(f"{sum(chosen)} near terms of {count}, order {shape}: {found} additions join them")
    return failures[:5]


def _joins(shape: object, near: Iterable[bool]) -> tuple[bool, int]:
    """Whether a partial sum holds a near term, and how many of its additions join two that do."""
    terms = iter(near)
    if not isinstance(shape, tuple):
        return next(terms), 0
    (left, left_joins), (right, right_joins) = _joins(shape[0], terms), _joins(shape[1], terms)
    return left or right, left_joins + right_joins + (left and right)


def far_failures(*, share: Expr = QUARTER, factor: Expr = 2) -> list[str]:
    """Whether far terms err by at most factor times their weight: gamma among themselves, and once more when joined."""
    product_of_count_and_unit = share / (1 + sympy.Symbol("s", positive=True))
    gamma = product_of_count_and_unit / (1 - product_of_count_and_unit)
    return has_negative_coefficient(sympy.together(factor - gamma - (1 + gamma)), f"{factor} minus 1 + 2 gamma")


def sum_failures(*, leaves: int = LEAVES, factor: Fraction = Fraction(1)) -> list[str]:
    """Whether every order of one near and some far terms stays within factor times the bound, in exact arithmetic."""
    unit, failures = Fraction(1, 2**PRECISION), []
    terms = [Fraction(2**PRECISION - 1), *(Fraction(9 + n, 2 ** (PRECISION + n)) for n in range(leaves - 2))]
    near, far = 1, sum(terms[1:])
    allowed = factor * solved(before_errors(near, unit, sum(terms), far) / sum(terms)) * sum(terms)
    for shape in shapes(len(terms)):
        for start in range(len(terms)):
            ordered = terms[start:] + terms[:start]
            error = abs(added(shape, iter(ordered), PRECISION) - sum(ordered))
            if error > allowed:
                failures.append(f"order {shape} from {start}: {error} > {allowed}")
    return failures[:5]


_PARTS = {"before": before_errors(NEAR, UNIT, ABSOLUTE, FAR), "solved": solved(SHARE)}


def claims() -> list[Claim]:
    """The claims of this file."""
    return [
        Claim(
            name="key-accumulation",
            title="Adding up all keys errs by a bound without their number",
            statement=fill(
                r"\Bigl|\mathrm{fl}\bigl(\textstyle\sum_k a_k\bigr) - \sum_k a_k\Bigr| \le $solved A,\quad b A ="
                r" $before",
                "|fl(sum_k a_k) - sum_k a_k| <= $solved A, b A = $before, in any order, with A at least the sum of all "
                "|a_k|, any n terms called near, and F the sum of |a_k| over the others, called far",
                **_PARTS,
            ),
            assumptions=(
                "The $a_k$ are floating-point numbers, rounded to nearest; at most $1 / (4 u)$ of them are not 0; "
                "$b < 1$.",
                "Zeros do not count: adding 0 does not round. A key at distance $D$ of its head's target weighs "
                "exactly 0 where $exp(-alpha D^2)$ rounds to 0 (claim `one-hot-threshold`), so the number of keys "
                "that count does not depend on the image; the code checks it.",
            ),
            steps=_steps(),
            checks=(
                Check(
                    "an addition errs by at most $min(|a|, |b|, u |a + b|)$",
                    Kind.INSTANCES,
                    addition_failures,
                    cases=(
                        f"all pairs of numbers of {PRECISION} bits up to {PRECISION + 2} binades apart, both signs",
                    ),
                ),
                Check(
                    "$n - 1$ additions join partial sums that hold near terms",
                    Kind.INSTANCES,
                    joining_failures,
                    cases=tuple(
                        f"{count} terms, every order and choice of near ones" for count in range(1, LEAVES + 1)
                    ),
                ),
                Check("far terms err by at most twice their weight, if $m u <= 1/4$", Kind.SYMBOLIC, far_failures),
                Check(
                    "the bound holds, in exact arithmetic",
                    Kind.INSTANCES,
                    sum_failures,
                    cases=(f"one near and {LEAVES - 2} far terms of {PRECISION} bits, every order",),
                ),
            ),
            justifies=(
                "conv2attn.convert.bounds.rounding.literal_error",
                "conv2attn.convert.bounds.rounding.weighing_keys",
            ),
            tests=(
                "convert.bounds.test_rounding.test_no_more_keys_weigh_something_than_are_counted",
                "convert.bounds.test_rounding.test_attention_with_too_many_keys_to_add_up_has_no_bound",
            ),
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"|\mathrm{fl}(a + b) - (a + b)| \le \min(|a|, |b|, u |a + b|)",
                "|fl(a + b) - (a + b)| <= min(|a|, |b|, u |a + b|)",
            ),
            "$fl(a + b)$ is the nearest floating-point number, so it is not further away than $a$ or $b$, which are "
            "floating-point numbers themselves.",
        ),
        Step(
            Formula(
                r"\sum_{\text{near, near}} u |a + b| \le (n - 1) u \hat{A}", "sum over near-near <= (n - 1) u hat A"
            ),
            "Of all additions, $n - 1$ join two partial sums that both hold near terms. $hat A$ bounds the computed "
            "partial sums: $A$ and all errors.",
        ),
        Step(
            Formula(
                r"\sum_{\text{far, far}} \le \gamma F,\quad \sum_{\text{near, far}} \min \le (1 + \gamma) F,\quad"
                r" \gamma = \frac{m u}{1 - m u} \le \frac{1}{3}",
                "sum over far-far <= gamma F, sum over near-far <= (1 + gamma) F, gamma = m u / (1 - m u) <= 1/3",
            ),
            "Partial sums of far terms alone err by the claim `rounded-sum`. Each is joined to near terms once, with "
            "an error of at most itself. Together at most $2 F$.",
        ),
        Step(
            Formula(
                r"\text{error} \le (n - 1) u (A + \text{error}) + 2 F \le b (A + \text{error})",
                "error <= (n - 1) u (A + error) + 2 F <= b (A + error)",
            ),
            "Solved for the error: at most $b / (1 - b) A$.",
        ),
    )
