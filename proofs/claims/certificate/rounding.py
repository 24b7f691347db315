"""Justifies ``convert/bounds/rounding.py``: sums of products in any order, softmax and scores in floating point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache

import sympy

from ...prover.decide import Expr, has_negative_coefficient, not_nonnegative
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill

PRECISIONS = (3, 4)
TERMS = 5
LONG_SUM = 1000
U, L, M = (sympy.Symbol(name, positive=True) for name in "ulm")
FIVE_QUARTERS, TWO_FIFTHS = sympy.Rational(5, 4), sympy.Rational(2, 5)
SLACK = sympy.Symbol("s", positive=True)


def gamma(terms: Expr, unit: Expr = U) -> Expr:
    """gamma_m = m u / (1 - m u)."""
    return terms * unit / (1 - terms * unit)


def induction_failures(*, bound: Callable[[Expr], Expr] = gamma) -> list[str]:
    """Whether (1 + bound(l)) (1 + bound(m)) <= 1 + bound(l + m), bound(1) >= u and bound(m) >= m u.

    u = 1 / (l + m + s) with s > 0 runs through all u with (l + m) u < 1.
    """
    small = {U: 1 / (L + M + SLACK)}
    pairs = {
        "l roundings and m more": (bound(L + M) - (1 + bound(L)) * (1 + bound(M)) + 1),
        "one rounding": bound(sympy.Integer(1)).subs(U, 1 / (1 + SLACK)) - 1 / (1 + SLACK),
        "m roundings downwards": bound(M) - M * U,
    }
    return [
        reason
        for what, expression in pairs.items()
        for reason in has_negative_coefficient(sympy.together(expression.subs(small)), what)
    ]


def round_to(value: Fraction, precision: int) -> Fraction:
    """The nearest number with a significand of so many bits, ties to even; without bounds on the exponent."""
    if value == 0:
        return value
    exponent = 0
    magnitude = abs(value)
    while magnitude >= 2 ** (exponent + 1):
        exponent += 1
    while magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - precision + 1)
    return round(value / unit) * unit


@cache
def shapes(leaves: int) -> tuple[object, ...]:
    """All ways to add up so many terms by twos: nested pairs, with None for a term."""
    if leaves == 1:
        return (None,)
    return tuple((a, b) for left in range(1, leaves) for a in shapes(left) for b in shapes(leaves - left))


def added(shape: object, terms: Iterator[Fraction], precision: int) -> Fraction:
    """The sum of the terms, added in this order and rounded after each addition."""
    if not isinstance(shape, tuple):
        return next(terms)
    left = added(shape[0], terms, precision)
    return round_to(left + added(shape[1], terms, precision), precision)


def order_failures(*, factor: Fraction = Fraction(1), precisions: Iterable[int] = PRECISIONS) -> list[str]:
    """Whether every order of a sum of products stays within factor gamma_m sum |w||x|, in exact arithmetic."""
    failures = []
    for precision in precisions:
        unit = Fraction(1, 2**precision)
        significands = [Fraction(n) for n in range(2 ** (precision - 1), 2**precision)]
        for first in significands:
            pairs = [(significands[(n * n + n) % len(significands)] * (-1) ** n, first / 2**n) for n in range(TERMS)]
            exact, absolute = sum(w * x for w, x in pairs), sum(abs(w * x) for w, x in pairs)
            allowed = factor * TERMS * unit / (1 - TERMS * unit) * absolute
            for shape in shapes(TERMS):
                found = added(shape, iter([round_to(w * x, precision) for w, x in pairs]), precision)
                if abs(found - exact) > allowed:
                    failures.append(f"precision {precision}, first {first}, order {shape}: {abs(found - exact)}")
    return failures[:5]


def sharpness_failures(*, share: Fraction = Fraction(99, 100), precision: int = 24, terms: int = LONG_SUM) -> list[str]:
    """Whether adding small numbers to 1, one after the other, errs by more than the share of gamma_m."""
    unit = Fraction(1, 2**precision)
    small = unit * (1 - Fraction(1, 2 ** (precision - 1)))  # a little less than half of what follows 1
    total = Fraction(1)
    for _ in range(terms - 1):
        total = round_to(total + small, precision)
    exact = 1 + (terms - 1) * small
    allowed = terms * unit / (1 - terms * unit) * exact
    reached = abs(total - exact) / allowed
    return [] if reached > share else [f"{terms} terms reach {float(reached):.3f} of the bound, not {float(share)}"]


_ERROR, _TOTAL = sympy.symbols("E T", positive=True)


def quotient_error(a: Expr, u: Expr, denominator: Expr) -> Expr:
    """(1 + a)(1 + u) / denominator - 1."""
    return (1 + a) * (1 + u) / denominator - 1


def smallest_denominator(error: Expr, total: Expr) -> Expr:
    """(1 - E)(1 - T)."""
    return (1 - error) * (1 - total)


def quotient_failures(*, denominator: Callable[[Expr, Expr], Expr] = smallest_denominator) -> list[str]:
    """Whether the upper error (1 + a)(1 + u) / denominator - 1 exceeds the lower 1 - (1 - a)(1 - u) / ((1 + E)(1 + T)).

    a, u, E and T are between 0 and 1; each is 1 / (1 + s) with its own s > 0.
    """
    slack = sympy.symbols("s_a s_u s_E s_T", positive=True)
    a, u, error, total = (1 / (1 + s) for s in slack)
    upper = quotient_error(a, u, denominator(error, total))
    lower = 1 - (1 - a) * (1 - u) / ((1 + error) * (1 + total))
    return has_negative_coefficient(sympy.together(upper - lower), "the upper error minus the lower")


def exponential_failures(*, factor: Expr = FIVE_QUARTERS, largest: Expr = TWO_FIFTHS, ratio: int = 2) -> list[str]:
    """Whether s / (1 - s / 2) <= factor s up to the largest s, and n! >= ratio^(n - 1) for n >= 1."""
    below = largest / (1 + SLACK)  # runs through 0 < s < largest
    failures = has_negative_coefficient(sympy.together(factor - 1 / (1 - below / 2)), "factor minus 1 / (1 - s / 2)")
    n = sympy.Symbol("n", integer=True, nonnegative=True)
    return failures + not_nonnegative((n + 2) - ratio, f"(n + 2)! / (n + 1)! minus {ratio}")  # and 1! = ratio^0


DISTANCE, REACH = sympy.symbols("D Delta", nonnegative=True)
AXES = sympy.Symbol("n", positive=True)
ROUNDINGS, CROSS, CONSTANT = AXES + 4, 4, 3


def distances(cross: Expr = CROSS, constant: Expr = CONSTANT) -> Expr:
    """2 D^2 + 4 |Delta| D + 3 |Delta|^2, where Delta stands for |Delta|."""
    return 2 * DISTANCE**2 + cross * REACH * DISTANCE + constant * REACH**2


def score_failures(*, factor: Expr = ROUNDINGS) -> list[str]:
    """Whether n + 2 roundings of a term and one of the difference come to at most factor u, if (n + 3) (n + 4) u <= 1.

    Together they are n + 3 roundings, at most gamma_{n + 3} by the claim ``rounded-sum``.
    """
    together = AXES + 3
    unit = 1 / (together * (together + 1) + SLACK)
    rest = sympy.together(factor * unit - gamma(together, unit))
    return has_negative_coefficient(rest, f"{factor} u minus gamma of n + 3 roundings")


def distance_failures(*, cross: int = CROSS, constant: int = CONSTANT) -> list[str]:
    """Whether |delta|^2 + 2 |Delta||delta| + D^2 <= 2 D^2 + cross |Delta| D + constant |Delta|^2.

    |delta| <= D + |Delta|, and the left side grows with |delta|.
    """
    largest = DISTANCE + REACH
    left = largest**2 + 2 * REACH * largest + DISTANCE**2
    rest = sympy.Poly(sympy.expand(distances(cross, constant) - left), DISTANCE, REACH)
    return [f"coefficient {c} < 0" for c in rest.coeffs() if c < 0]


_PARTS = {
    "gamma": gamma(M),
    "quotient": quotient_error(_ERROR, U, smallest_denominator(_ERROR, _TOTAL)),
    "half": SLACK / (1 - SLACK / 2),
    "factor": FIVE_QUARTERS * SLACK,
    "largest": TWO_FIFTHS,
    "scores": ROUNDINGS * U,
    "distances": distances(),
}


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_rounded_sum(), _softmax(), _scores()]


def _rounded_sum() -> Claim:
    return Claim(
        name="rounded-sum",
        title="A sum of products in any order, and sums of sums",
        statement=fill(
            r"\bigl|\mathrm{fl}\bigl(\sum_i w_i x_i\bigr) - \sum_i w_i x_i\bigr| \le \gamma_m \sum_i |w_i||x_i|"
            r",\quad \gamma_m = $gamma,\quad (1 + \gamma_l)(1 + \gamma_m) \le 1 + \gamma_{l + m}",
            "|fl(sum_i w_i x_i) - sum_i w_i x_i| <= gamma_m sum_i |w_i||x_i| for m products added in any order, with "
            "gamma_m = $gamma; and (1 + gamma_l)(1 + gamma_m) <= 1 + gamma_{l + m}. No smaller bound holds "
            "for every order: 1 + u' + u' + ..., with u' just below u, reaches 99 % of it.",
            **_PARTS,
        ),
        assumptions=(
            "$fl(a op b) = (a op b)(1 + e)$ with $|e| <= u$ for products and sums: rounding to nearest, no overflow. "
            "What underflow adds is counted separately.",
            "$m u < 1$. A product and a sum may be rounded together (fused).",
        ),
        steps=(
            Step(
                Formula(
                    r"\mathrm{fl}\Bigl(\sum_i w_i x_i\Bigr) = \sum_i w_i x_i \prod_{j \in J_i} (1 + e_j),"
                    r"\quad |J_i| \le m",
                    "fl(sum_i w_i x_i) = sum_i w_i x_i prod_{j in J_i} (1 + e_j), |J_i| <= m",
                ),
                "Each term is rounded as a product, and in the at most $m - 1$ additions on its way to the sum.",
            ),
            Step(
                Formula(
                    r"\Bigl|\prod_{j \in J} (1 + e_j) - 1\Bigr| \le \gamma_{|J|} \le \gamma_m",
                    "|prod_{j in J} (1 + e_j) - 1| <= gamma_{|J|} <= gamma_m",
                ),
                "By induction: $1 + u <= 1 + gamma_1$, and $(1 + gamma_l)(1 + gamma_1) <= 1 + gamma_{l+1}$. "
                "Downwards, $(1 - u)^m >= 1 - m u >= 1 - gamma_m$.",
            ),
        ),
        checks=(
            Check("$gamma$ composes, for all $l$, $m$ and $u$ with $(l + m) u < 1$", Kind.SYMBOLIC, induction_failures),
            Check(
                "every order of a sum, rounded in exact arithmetic",
                Kind.INSTANCES,
                order_failures,
                cases=tuple(f"{TERMS} products, all {len(shapes(TERMS))} orders, {p} bits" for p in PRECISIONS),
            ),
            Check(f"a sum of {LONG_SUM} terms in 24 bits reaches 99 % of the bound", Kind.EXACT, sharpness_failures),
        ),
        justifies=(
            "conv2attn.convert.bounds.rounding.gamma",
            "conv2attn.convert.bounds.rounding.convolution_error",
            "conv2attn.convert.certificate.seal.seal",
            "conv2attn.proofs.formal.checker.folder.check_layer",
        ),
        source="Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1 and section 4.2",
        tests=(
            "proofs.claims.test_rounding.test_the_gamma_of_the_code_is_that_of_the_proof",
            "proofs.claims.test_rounding.test_the_rounding_of_the_proof_is_that_of_binary64",
            "proofs.formal.test_formal_bridge.test_the_certificate_of_one_hot_attention_lies_on_the_formal_one",
            "proofs.formal.checker.test_check.test_tampered_certificates_are_refused",
        ),
        formal=(
            "Summation.tree_error",
            "Rounding.rounded_sum",
            "Rounding.single_term_is_exact",
            "ExactRegime.certificate_of_one_hot_attention",
            "Checker.check_is_right",
            "Checker.one_change_breaks_the_seal",
            "StoredNumbers.decoded_is_the_number",
        ),
    )


def _softmax() -> Claim:
    return Claim(
        name="softmax-rounding",
        title="The error of computed attention probabilities",
        statement=fill(
            r"\sum_k |\mathrm{fl}(p_k) - p_k| \le $quotient", "sum_k |fl(p_k) - p_k| <= $quotient", **_PARTS
        ),
        assumptions=(
            "$fl(p_k)$ is the quotient, rounded, of $exp(s_k)(1 + e_k)$ and of the sum of these, which errs by at "
            "most $T$.",
            "$sum_k p_k |e_k| <= E$, with $E < 1$ and $T < 1$.",
        ),
        steps=(
            Step(
                Formula(
                    r"\mathrm{fl}(p_k) = p_k \frac{(1 + e_k)(1 + d_k)}{(1 + \sum_l p_l e_l)(1 + t)},"
                    r"\quad |d_k| \le u,\ |t| \le T",
                    "fl(p_k) = p_k (1 + e_k)(1 + d_k) / ((1 + sum_l p_l e_l)(1 + t)), |d_k| <= u, |t| <= T",
                ),
                "Numerator and denominator divided by $sum_l exp(s_l)$.",
            ),
            Step(
                Formula(
                    r"|\mathrm{fl}(p_k) - p_k| \le p_k \Bigl(\frac{(1 + |e_k|)(1 + u)}{(1 - E)(1 - T)} - 1\Bigr)",
                    "|fl(p_k) - p_k| <= p_k ((1 + |e_k|)(1 + u) / ((1 - E)(1 - T)) - 1)",
                ),
                "$|sum_l p_l e_l| <= E$. The error downwards is smaller. The sum over $k$ gives the statement.",
            ),
            Step(
                fill(
                    r"e^s - 1 \le s + \frac{s^2}{2} + \frac{s^3}{4} + \dots = $half \le $factor,\quad 0 \le s \le"
                    r" $largest",
                    "e^s - 1 <= s + s^2/2 + s^3/4 + ... = $half <= $factor for 0 <= s <= $largest",
                    **_PARTS,
                ),
                "$n! >= 2^(n-1)$. So a score that errs by $s$ adds at most $5/4 s$ to $|e_k|$.",
            ),
        ),
        checks=(
            Check("the error upwards is the larger one", Kind.SYMBOLIC, quotient_failures),
            Check("$e^s - 1 <= 5/4 s$", Kind.SYMBOLIC, exponential_failures),
        ),
        justifies=("conv2attn.convert.bounds.rounding.literal_error",),
        tests=(
            "convert.certificate.test_certificate.test_each_part_bounds_what_it_says_in_exact_arithmetic",
            "proofs.formal.test_formal_bridge.test_the_error_of_probabilities_lies_on_the_formal_one",
        ),
        formal=("SoftmaxRounding.probabilities_error",),
    )


def _scores() -> Claim:
    return Claim(
        name="score-rounding",
        title="The error of scores that are not exact",
        statement=fill(
            r"|\mathrm{fl}(s_k) - s_k| \le $scores\, \alpha \bigl($distances\bigr),\quad D = |k - t|",
            "|fl(s_k) - s_k| <= $scores alpha ($distances), D = |k - t| and Delta short for its length, after the "
            "subtraction of the largest score and up to a constant of the query",
            **_PARTS,
        ),
        assumptions=(
            "$n$ axes, with $(n + 3)(n + 4) u <= 1$.",
            "Positions and centres are integers that floating point holds.",
        ),
        steps=(
            Step(
                Formula(
                    r"s_k = -\alpha |\delta|^2 + 2 \alpha \Delta_1 \delta_1 + \dots + 2 \alpha \Delta_n \delta_n",
                    "s_k = -alpha |delta|^2 + 2 alpha Delta_1 delta_1 + ... + 2 alpha Delta_n delta_n",
                ),
                "Each term is rounded at most $n + 2$ times: $alpha Delta$, the product with $delta$, $n$ additions. "
                "The subtraction of the maximum rounds $alpha D^2$ once more; the maximum's own error is the same "
                "for all keys.",
            ),
            Step(
                Formula(
                    r"(1 + u)^{n+3} - 1 \le \gamma_{n+3} \le (n + 4) u",
                    "(1 + u)^(n + 3) - 1 <= gamma_{n+3} <= (n + 4) u",
                ),
                "The claim `rounded-sum`; the second inequality says that $(n + 3)(n + 4) u <= 1$.",
            ),
            Step(
                fill(
                    r"|\delta|^2 + 2 |\Delta||\delta| + D^2 \le $distances",
                    "|delta|^2 + 2 |Delta||delta| + D^2 <= $distances",
                    **_PARTS,
                ),
                "$|delta| <= D + |Delta|$.",
            ),
        ),
        checks=(
            Check("$n + 3$ roundings come to at most $(n + 4) u$, for every $n$", Kind.SYMBOLIC, score_failures),
            Check("the triangle inequality for the distances", Kind.SYMBOLIC, distance_failures),
        ),
        justifies=("conv2attn.convert.bounds.rounding.literal_error",),
        tests=("convert.certificate.test_certificate.test_each_part_bounds_what_it_says_in_exact_arithmetic",),
    )
