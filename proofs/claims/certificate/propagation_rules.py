"""Justifies the rules of ``convert/certificate/network``: what operations make of bounds on values and differences.

Known of a tensor in both networks are ends l <= a, c <= u, and |a - c| <= e. A symbol that is at least 0 stands for
every slack in an inequality; what is to be shown is then a polynomial of such symbols without a negative coefficient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, not_nonnegative, unequal
from ...prover.formula import fill, lines

COUNTS = (1, 2, 3, 5)
A, B, C, D = sympy.symbols("a b c d", real=True)  # values of one network, a and b, and of the other, c and d
E, G = sympy.symbols("e g", nonnegative=True)  # |a - c| <= e, |b - d| <= g
PRODUCT = A * (B - D) + D * (A - C)  # of which every factor is bounded
QUOTIENT = (A - C) / B


def sum_failures(*, error: Expr = E + G) -> list[str]:
    """Whether a + b and a - b are between the sums of their ends, and differ by at most e + g.

    The difference is (a - c) + (b - d) or (a - c) - (b - d); each of its terms is e - p or g - q, from above.
    """
    low, other_low = sympy.symbols("l m", real=True)
    w, x, r, s, p, q = sympy.symbols("w x r s p q", nonnegative=True)
    failures = not_nonnegative(error - ((E - p) + (G - q)), "bound minus difference")
    for sign in (1, -1):
        ends = (low, low + w + r), (other_low, other_low + x + s)  # a = l + w and b = m + x
        second = ends[1] if sign > 0 else (-ends[1][1], -ends[1][0])
        value = (low + w) + sign * (other_low + x)
        failures += not_nonnegative(value - (ends[0][0] + second[0]), f"sign {sign}: value minus lower end")
        failures += not_nonnegative(ends[0][1] + second[1] - value, f"sign {sign}: upper end minus value")
    return failures


def product_failures(
    *, identity: Expr = PRODUCT, corners: Callable[[Expr, Expr], Expr] = lambda s, t: s * t
) -> list[str]:
    """Whether a b - c d is the identity, and a b a weighted mean of the products of the ends."""
    low, high, other_low, other_high, s, t = sympy.symbols("l u m v s t", real=True)  # 0 <= s, t <= 1
    failures = unequal(A * B - C * D, identity, "a b - c d")
    first, second = (1 - s) * low + s * high, (1 - t) * other_low + t * other_high
    weights = {
        (low, other_low): corners(1 - s, 1 - t),
        (low, other_high): corners(1 - s, t),
        (high, other_low): corners(s, 1 - t),
        (high, other_high): corners(s, t),
    }
    mean = sum(weight * x * y for (x, y), weight in weights.items())
    failures += unequal(first * second, mean, "a b minus the mean of the corners")
    return failures + unequal(sum(weights.values()), 1, "the sum of the weights")


def quotient_failures(*, identity: Expr = QUOTIENT) -> list[str]:
    """Whether a / b - c / b is the identity: a positive number divides ends and difference."""
    return unequal(A / B - C / B, identity, "a / b - c / b")


def mean_failures(counts: Iterable[int] = COUNTS, *, total: Expr = 1) -> list[str]:
    """Whether sum_i w_i x_i is between l and u, and moves by at most e, for w_i >= 0 of sum 1 (or of another total)."""
    failures = []
    low, width = sympy.Symbol("l", real=True), sympy.Symbol("w", nonnegative=True)
    for count in counts:
        weights = list(sympy.symbols(f"w1:{count + 1}", nonnegative=True))
        share, slack = (
            sympy.symbols(f"s1:{count + 1}", nonnegative=True),
            sympy.symbols(f"p1:{count + 1}", nonnegative=True),
        )
        ones = sum(weights)  # instead of 1: both sides are multiplied with the sum of the weights
        mean = sum(weight * (low + part) for weight, part in zip(weights, share, strict=True))  # x_i = l + s_i
        failures += not_nonnegative(sympy.expand(mean - total * ones * low), f"{count} values: mean minus l")
        below = sum(weight * (low + width - part) for weight, part in zip(weights, share, strict=True))
        failures += not_nonnegative(sympy.expand(total * ones * (low + width) - below), f"{count} values: u minus mean")
        moved = sum(weight * (E - part) for weight, part in zip(weights, slack, strict=True))  # x_i - y_i = e - p_i
        failures += not_nonnegative(sympy.expand(total * ones * E - moved), f"{count} values: e minus difference")
    return failures


def maximum_failures(counts: Iterable[int] = COUNTS, *, factor: Expr = 1) -> list[str]:
    """Whether max_i a_i <= max_i c_i + factor e if a_i <= c_i + e for all i; the rest is by symmetry.

    Whichever a_j is the maximum: c_j is at most max_i c_i.
    """
    failures = []
    top = sympy.Symbol("M", real=True)
    for count in counts:
        below, slack = (sympy.symbols(f"{name}1:{count + 1}", nonnegative=True) for name in "bp")
        for number, (b, p) in enumerate(zip(below, slack, strict=True), start=1):
            a = (top - b) + E - p  # c_j = M - b_j, a_j = c_j + e - p_j
            failures += not_nonnegative(top + factor * E - a, f"{count} values: bound minus a_{number}")
    return failures


def gate_failures(*, low: Callable[[Expr, Expr], Expr] = lambda positive, x: sympy.Integer(0)) -> list[str]:
    """Whether x s is between min(x, 0) and max(x, 0) for 0 <= s <= 1: SiLU, GELU and hardswish are of this form."""
    x, s = sympy.Symbol("x", nonnegative=True), sympy.Symbol("s", nonnegative=True)
    rest = sympy.Symbol("r", nonnegative=True)  # s + r stands for 1
    failures = []
    for sign in (1, -1):  # x >= 0 and x <= 0
        value = sign * x * s
        ends = (low(s + rest, x), x * (s + rest)) if sign > 0 else (-x * (s + rest), -low(s + rest, x))
        failures += not_nonnegative(value - ends[0], f"sign {sign}: value minus lower end")
        failures += not_nonnegative(ends[1] - value, f"sign {sign}: upper end minus value")
    return failures


def range_failures(*, width: int = 1) -> list[str]:
    """Whether |a - c| <= width (u - l) for two numbers between l and u."""
    low = sympy.Symbol("l", real=True)
    w, r, x = sympy.symbols("w r x", nonnegative=True)
    failures = []
    for a, c in ((low + w + r, low + w), (low + w, low + w + r)):  # c <= a and a <= c; u is x above the larger
        high = low + w + r + x
        for sign in (1, -1):
            failures += not_nonnegative(width * (high - low) - sign * (a - c), f"sign {sign}: u - l minus a - c")
    return failures


def rounding_failures(*, roundings: int = 2) -> list[str]:
    """Whether |fl f - fl g| <= |f - g| + roundings r if both are rounded with an error of at most r."""
    f, g = sympy.symbols("f g", real=True)
    r, p, q = sympy.symbols("r p q", nonnegative=True)
    computed = (f + r - p) - (g - r + q)  # the worst signs; the others are symmetric
    return not_nonnegative((f - g) + roundings * r - computed, "bound minus difference")


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_rules()]


def _rules() -> Claim:
    return Claim(
        name="propagation-rules",
        title="What each operation makes of bounds on values and differences",
        statement=lines(
            fill(
                r"a \pm b:\ \text{ends add},\quad $error",
                "a +- b: ends add, the difference is at most $error",
                error=E + G,
            ),
            fill(
                r"a b - c d = $product,\quad \min \le a b \le \max \text{ of the ends' products}",
                "a b - c d = $product; a b is between the smallest and the largest product of ends",
                product=PRODUCT,
            ),
            fill(
                r"a / b - c / b = $quotient,\quad b > 0",
                "a / b - c / b = $quotient for one number b > 0",
                quotient=QUOTIENT,
            ),
            Formula(
                r"\textstyle \sum_i w_i x_i,\ w_i \ge 0,\ \sum_i w_i = 1:\quad l \le \cdot \le u,\ \text{difference}"
                r" \le e",
                "means sum_i w_i x_i, w_i >= 0 of sum 1: between l and u, the difference is at most e",
            ),
            Formula(
                r"|\max_i a_i - \max_i c_i| \le e,\quad |\min_i a_i - \min_i c_i| \le e",
                "|max_i a_i - max_i c_i| <= e and |min_i a_i - min_i c_i| <= e",
            ),
            Formula(
                r"|f(a) - f(c)| \le \sup |f'|\, e,\quad f(l) \le f(a) \le f(u) \text{ for growing } f,\quad \min(x,"
                r" 0) \le x s \le \max(x, 0)",
                "|f(a) - f(c)| <= sup |f'| e; f(l) <= f(a) <= f(u) where f grows; min(x, 0) <= x s <= max(x, 0) for "
                "0 <= s <= 1",
            ),
            Formula(
                r"|a - c| \le u - l,\quad |\mathrm{fl} f - \mathrm{fl} g| \le |f - g| + 2 r",
                "|a - c| <= u - l; |fl f - fl g| <= |f - g| + 2 r for roundings of at most r",
            ),
        ),
        assumptions=(
            "$l <= a$, $c <= u$ and $|a - c| <= e$; likewise $m <= b$, $d <= v$ and $|b - d| <= g$.",
            "Both networks compute the same operation by the same program; on equal numbers it gives equal results.",
        ),
        steps=(
            Step(
                Formula(
                    r"\text{moving, joining, padding with a constant: each value is one of the inputs' or the"
                    r" constant}",
                    "moving, joining, padding with a constant: each value is one of the inputs' or the constant",
                ),
                "So the smallest $l$, the largest $u$ and the largest $e$ hold for all, and a constant differs by 0. "
                "Where channels stay channels, their own bounds stay.",
            ),
            Step(
                fill(
                    r"a b - c d = $product \implies |a b - c d| \le |a| g + |d| e",
                    "a b - c d = $product, so |a b - c d| <= |a| g + |d| e",
                    product=PRODUCT,
                ),
                "Add and subtract $a d$. The product is linear in each factor, so it is a mean of its values at the "
                "ends.",
            ),
            Step(
                Formula(
                    r"\textstyle \sum_i w_i (x_i - y_i) \le \sum_i w_i e = e,\quad \max_i a_i = a_j \le c_j + e \le"
                    r" \max_i c_i + e",
                    "sum_i w_i (x_i - y_i) <= sum_i w_i e = e; max_i a_i = a_j <= c_j + e <= max_i c_i + e",
                ),
                "Averages and interpolation are means; with zero padding 0 is among the values. ReLU and clamping are "
                "maxima and minima with a constant.",
            ),
            Step(
                Formula(
                    r"\mathrm{fl} f - \mathrm{fl} g = (\mathrm{fl} f - f) + (f - g) + (g - \mathrm{fl} g)",
                    "fl f - fl g = (fl f - f) + (f - g) + (g - fl g)",
                ),
                "Each network rounds once. Where both compute on the same numbers the difference stays 0.",
            ),
        ),
        checks=(
            Check("sums and differences", Kind.SYMBOLIC, sum_failures),
            Check("products", Kind.SYMBOLIC, product_failures),
            Check("quotients by a number", Kind.SYMBOLIC, quotient_failures),
            Check("means", Kind.INSTANCES, mean_failures, cases=tuple(f"{count} values" for count in COUNTS)),
            Check("maxima", Kind.INSTANCES, maximum_failures, cases=tuple(f"{count} values" for count in COUNTS)),
            Check("a number times $x$, between 0 and 1", Kind.SYMBOLIC, gate_failures),
            Check("differences of numbers in a range", Kind.SYMBOLIC, range_failures),
            Check("two roundings", Kind.SYMBOLIC, rounding_failures),
        ),
        justifies=(
            "conv2attn.convert.certificate.network.rules.interval.checked",
            "conv2attn.convert.certificate.network.rules.interval.Arithmetic.rounded",
            "conv2attn.convert.certificate.network.rules.pointwise.Activation",
        ),
        tests=("convert.certificate.network.test_rules.test_an_operation_stays_within_its_bounds",),
    )
