"""Justifies what ``convert/bounds/rounding.py`` adds for underflow, and where it says that nothing overflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import sympy

from ...prover.decide import has_negative_coefficient
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from .rounding import round_to, shapes

PRECISION = 4
SMALLEST = Fraction(1)  # lambda
TERMS = 4
SLACK = sympy.Symbol("s", positive=True)

Numbers = tuple[Fraction, ...]


def addition_failures(*, read: int = 2, written: int = 1, factor: int = 4) -> list[str]:
    """Whether both operands read as 0 and the result written as 0 cost at most factor lambda, for u <= 1/2.

    The operands lose lambda each, which also changes what is rounded; the result loses lambda.
    """
    unit = 1 / (2 * (1 + SLACK))
    return has_negative_coefficient(
        sympy.together(factor - read - written - read * unit), f"{factor} lambda minus what an addition loses"
    )


def flush(value: Fraction) -> Fraction:
    """0 in place of a subnormal number."""
    return value if abs(value) >= SMALLEST else Fraction()


def keep(value: Fraction) -> Fraction:
    """A subnormal number as the nearest multiple of the smallest one."""
    step = SMALLEST / 2 ** (PRECISION - 1)
    return value if abs(value) >= SMALLEST else round(value / step) * step


def same(value: Fraction) -> Fraction:
    """What is read as it is."""
    return value


MODES = tuple(product((same, flush), (keep, flush)))  # how operands are read, and results are written


def computed(
    shape: object,
    pairs: Iterator[tuple[Fraction, Fraction]],
    read: Callable[[Fraction], Fraction],
    write: Callable[[Fraction], Fraction],
) -> tuple[Fraction, Fraction]:
    """The sum of the products w x in this order, and the largest absolute value of a partial sum."""

    def rounded(value: Fraction) -> Fraction:
        return write(round_to(value, PRECISION))

    if not isinstance(shape, tuple):
        w, x = next(pairs)
        value = rounded(read(w) * read(x))
        return value, abs(value)
    (left, a), (right, b) = (computed(part, pairs, read, write) for part in shape)
    value = rounded(read(left) + read(right))
    return value, max(a, b, abs(value))


def cases() -> Iterator[tuple[Numbers, Numbers]]:
    """Weights and inputs of some bits, normal and subnormal, huge and small, of both signs."""
    step = SMALLEST / 2 ** (PRECISION - 1)
    huge, one, just_normal, subnormal = 2**9 * Fraction(9), Fraction(11, 8), SMALLEST, 7 * step
    weights = ((subnormal, one, -subnormal, just_normal), (one, one, one, -one), (subnormal,) * TERMS)
    inputs = ((huge, subnormal, huge, one), (-subnormal, subnormal, huge, -just_normal), (subnormal,) * TERMS)
    yield from product(weights, inputs)


def order_failures(
    *, flushed: int = 1, inputs: int = 1, each: int = 5, factor: Fraction = Fraction(1), partial: int = 1
) -> list[str]:
    """Whether every order of a sum stays within the bound, and no partial sum exceeds what overflow is judged by.

    Args:
        flushed: What sum |w||x| over the subnormal weights counts.
        inputs: What lambda sum |w| counts.
        each: What lambda counts for each term.
        factor: Of the whole underflow.
        partial: What (1 + gamma) sum |w||x| counts for partial sums.
    """
    unit = Fraction(1, 2**PRECISION)
    gamma, failures = TERMS * unit / (1 - TERMS * unit), []
    for (weights, x), (read, write), shape in product(cases(), MODES, shapes(TERMS)):
        pairs = list(zip(weights, x, strict=True))
        absolute = sum(abs(w * v) for w, v in pairs)
        lost = flushed * sum(abs(w * v) for w, v in pairs if abs(w) < SMALLEST)
        lost += SMALLEST * (inputs * sum(map(abs, weights)) + each * TERMS)
        allowed = gamma * absolute + factor * (1 + gamma) * lost
        found, largest = computed(shape, iter(pairs), read, write)
        if abs(found - sum(w * v for w, v in pairs)) > allowed:
            failures.append(f"weights {weights}, inputs {x}, order {shape}: error above {allowed}")
        if largest > partial * (1 + gamma) * absolute + factor * (1 + gamma) * lost:
            failures.append(f"weights {weights}, inputs {x}, order {shape}: a partial sum of {largest}")
    return failures[:5]


def claims() -> list[Claim]:
    """The claim of this file."""
    return [
        Claim(
            name="underflow-errors",
            title="What underflow adds to the error of a sum, and when nothing overflows",
            statement=Formula(
                r"\Bigl|\mathrm{fl}\bigl(\textstyle\sum_i w_i x_i\bigr) - \sum_i w_i x_i\Bigr| \le \gamma_m \sum_i"
                r" |w_i||x_i| + (1 + \gamma_m) \Bigl(\sum_{|w_i| < \lambda} |w_i||x_i| + \lambda \sum_i |w_i| +"
                r" 5 m \lambda\Bigr)",
                "|fl(sum_i w_i x_i) - sum_i w_i x_i| <= gamma_m sum_i |w_i||x_i| + (1 + gamma_m)(sum over |w_i| < "
                "lambda of |w_i||x_i| + lambda sum_i |w_i| + 5 m lambda), with lambda the smallest normal number, "
                "whether subnormal operands and results are kept or taken for 0, in any order; and no partial sum "
                "exceeds (1 + gamma_m) sum_i |w_i||x_i| by more than the same.",
            ),
            assumptions=(
                "A subnormal operand may be read as 0, by any operation; a result below $lambda$ may be written as "
                "0, or rounded to the nearest subnormal number.",
                "$m u < 1$, $u <= 1/2$. A product and a sum may be rounded together (fused).",
            ),
            steps=_steps(),
            checks=(
                Check("an addition loses at most $4 lambda$", Kind.SYMBOLIC, addition_failures),
                Check(
                    "the bounds hold in exact arithmetic",
                    Kind.INSTANCES,
                    order_failures,
                    cases=tuple(
                        f"{len(list(cases()))} sums of {TERMS} products of {PRECISION} bits, every order, operands"
                        f" {'kept' if read is same else 'flushed'}, results {'kept' if write is keep else 'flushed'}"
                        for read, write in MODES
                    ),
                ),
            ),
            justifies=(
                "conv2attn.convert.bounds.rounding.attention_rounding",
                "conv2attn.convert.bounds.rounding.convolution_rounding",
            ),
            tests=(
                "convert.bounds.test_extremes.test_numbers_of_any_size_stay_within_the_bound_in_exact_arithmetic",
                "convert.bounds.test_extremes.test_subnormal_weights_of_huge_inputs_stay_within_the_bound",
            ),
            formal=(
                "ExactRegime.side_error",
                "ExactRegime.result_at_most",
            ),
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"|\mathrm{fl}(w x) - w x| \le u |w||x| + \lambda |w| + \lambda,\quad |w| \ge \lambda",
                "|fl(w x) - w x| <= u |w||x| + lambda |w| + lambda for |w| >= lambda; at most |w||x| + lambda else",
            ),
            "An input below $lambda$ that is read as 0 loses less than $lambda |w|$, a result that is written as 0 "
            "less than $lambda$. A weight below $lambda$ that is read as 0 loses the product, however large $x$ is.",
        ),
        Step(
            Formula(
                r"|\mathrm{fl}(a + b) - (a + b)| \le u |a + b| + 4 \lambda",
                "|fl(a + b) - (a + b)| <= u |a + b| + 4 lambda",
            ),
            "Both operands lose less than $lambda$, and the result; what is rounded changes by less than $2 lambda$.",
        ),
        Step(
            Formula(
                r"(1 + \gamma_m)\Bigl(\sum_{|w_i| < \lambda} |w_i||x_i| + \lambda \sum_i |w_i| + m \lambda"
                r" + 4 (m - 1) \lambda\Bigr)",
                "(1 + gamma_m)(sum over |w_i| < lambda of |w_i||x_i| + lambda sum_i |w_i| + m lambda + 4 (m - 1) "
                "lambda)",
            ),
            "What is lost goes through at most $m$ more roundings (claim `rounded-sum`). A partial sum is a sum of "
            "some of the products, so it obeys the same bound.",
        ),
    )
