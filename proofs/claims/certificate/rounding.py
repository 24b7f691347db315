"""Justifies ``convert/bounds/rounding.py``: sums of products in any order, softmax and scores in floating point."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import sympy

from ...prover.checks import Expr, has_negative_coefficient, nonnegative, not_nonnegative, positive_form
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.sums import U, added, gamma, round_to, shapes

PRECISIONS = (3, 4)
TERMS = 5
LONG_SUM, BITS, REACHED = 1000, 24, Fraction(99, 100)
L, M = sympy.symbols("l m", positive=True)
FIVE_QUARTERS, TWO_FIFTHS = sympy.Rational(5, 4), sympy.Rational(2, 5)
SLACK = sympy.Symbol("s", positive=True)


def induction_failures(*, bound: Callable[[Expr], Expr] = gamma) -> Failures:
    """Fails unless (1 + bound(l)) (1 + bound(m)) <= 1 + bound(l + m), bound(1) >= u and bound(m) >= m u.

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
        for reason in has_negative_coefficient(expression.subs(small), what)
    ]


def order_failures(*, factor: Fraction = Fraction(1), precisions: Iterable[int] = PRECISIONS) -> Failures:
    """Fails unless every order of a sum of products stays within factor gamma_m sum |w||x|, in exact arithmetic."""
    for precision in precisions:
        significands = [Fraction(n) for n in range(2 ** (precision - 1), 2**precision)]
        for first in significands:
            pairs = [(significands[(n * n + n) % len(significands)] * (-1) ** n, first / 2**n) for n in range(TERMS)]
            products = [w * x for w, x in pairs]
            allowed = factor * gamma(TERMS, Fraction(1, 2**precision)) * sum(map(abs, products))
            for shape in shapes(TERMS):
                found = added(shape, (round_to(each, precision) for each in products), precision)
                if abs(found - sum(products)) > allowed:
                    yield f"precision {precision}, first {first}, order {shape}: {found}"


def sharpness_failures(*, share: Fraction = REACHED, precision: int = BITS, terms: int = LONG_SUM) -> Failures:
    """Fails unless adding small numbers to 1, one after the other, errs by more than the share of gamma_m."""
    unit = Fraction(1, 2**precision)
    small = unit * (1 - Fraction(1, 2 ** (precision - 1)))  # a little less than half of what follows 1
    total = Fraction(1)
    for _ in range(terms - 1):
        total = round_to(total + small, precision)
    exact = 1 + (terms - 1) * small
    reached = abs(total - exact) / (gamma(terms, unit) * exact)
    return [] if reached > share else [f"{terms} terms reach {float(reached):.3f} of the bound, not {float(share)}"]


@claim(
    status=Status.COQ,
    scope=r"Each product and each sum is rounded once, $\mathrm{fl}(y) = y (1 + e)$ with $|e| \le u$, to nearest and "
    r"without overflow; a product and a sum may be rounded together (fused). The terms are added in any order, "
    r"and $m u < 1$. What underflow adds is counted in `underflow-errors`. Of a layer that `conv2attn check` accepts, "
    r"Coq also has that nothing overflows.",
    source="Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1 and section 4.2",
    justifies=("convert/bounds/rounding.py: gamma, convolution_error", "proofs/formal/certificates.py: check_layer"),
    coq=(
        "Rounding.v: rounded_sum, single_term_is_exact",
        "Summation.v: tree_error",
        "ExactRegime.v: certificate_of_one_hot_attention, one_hot_results_at_most",
        "Overflow.v: one_hot_runs_are_finite",
        "Literal.v: literal_order, reading_order, convolution_order",
        "Checker.v: check_is_right, check_is_right_with_a_largest_number, literal_attention_is_right",
        "StoredNumbers.v: decoded_is_the_number",
    ),
    tests=(
        "proofs/claims/test_rounding.py",
        "proofs/formal/test_formal_bridge.py",
        "proofs/formal/test_certificates.py",
    ),
)
def rounded_sum() -> Checks:
    r"""A sum of products errs by a bound that holds for every order.

    For $m$ products, $\gamma_m = {=gamma(M)}$,

    ```math
    \Bigl|\mathrm{fl}\Bigl(\sum_i w_i x_i\Bigr) - \sum_i w_i x_i\Bigr| \le \gamma_m \sum_i |w_i||x_i| .
    ```

    In the exact regime attention and convolution are such sums, so Coq has the bound that `certify` returns there, and
    that a program which recomputes it is right.

    **Proof.** Each product is rounded once, and again in the at most $m - 1$ additions on its way to the sum. So
    $\mathrm{fl}(\sum_i w_i x_i) = \sum_i w_i x_i \prod_{j \in J_i} (1 + e_j)$ with $|J_i| \le m$. By induction such a
    product is at most $1 + \gamma_m$: $u \le \gamma_1$, and

    ```math
    (1 + \gamma_l)(1 + \gamma_m) \le 1 + \gamma_{l + m} \qquad ((l + m)\, u < 1) .
    ```

    It is at least $(1 - u)^m \ge 1 - m u \ge 1 - \gamma_m$. $\square$

    The inequality also bounds sums of sums. A bound for every order cannot be much smaller: adding ${=LONG_SUM - 1}$
    numbers of just below $u$ to 1, one after the other, reaches ${=REACHED}$ of it.
    """
    orders, bits = len(shapes(TERMS)), " and ".join(map(str, PRECISIONS))
    yield Check("$\\gamma$ composes, for all $l$, $m$ and $u$ with $(l + m) u < 1$", induction_failures)
    yield Check(
        "every order of a sum, rounded exactly", order_failures, f"{TERMS} products, {orders} orders, {bits} bits"
    )
    yield Check("a long sum comes near the bound", sharpness_failures, f"{LONG_SUM} terms, {BITS} bits")


SHARE, ERROR, TOTAL = sympy.symbols("a E T", positive=True)  # a is |e_k|
UPPER = (1 + SHARE) * (1 + U) / ((1 - ERROR) * (1 - TOTAL)) - 1


@claim(
    status=Status.COQ,
    scope=r"$\mathrm{fl}(p_k)$ is the quotient, rounded, of a computed $e^{s_k} (1 + e_k)$ and of the computed sum of "
    r"these, which errs by at most the share $T < 1$; and $\sum_k p_k |e_k| \le E < 1$.",
    justifies=("convert/bounds/rounding.py: literal_error",),
    coq=("SoftmaxRounding.v: probabilities_error",),
    tests=("convert/certificate/test_certificate.py", "proofs/formal/test_formal_bridge.py"),
    is_lemma=True,
)
def softmax_rounding(
    *, worst: Expr = UPPER, share: Expr = FIVE_QUARTERS, largest: Expr = TWO_FIFTHS, ratio: int = 2
) -> Checks:
    r"""Computed attention probabilities.

    They are $\mathrm{fl}(p_k) = p_k (1 + e_k)(1 + d_k) / ((1 + \sum_l p_l e_l)(1 + t))$ with $|d_k| \le u$ and
    $|t| \le T$. The error upwards is the larger one, and averages of $|e_k|$ are at most $E$, so
    $\sum_k |\mathrm{fl}(p_k) - p_k| \le {=upper}$.

    A score that errs by $s$ adds at most ${=factor}$ to $|e_k|$, by algebra: since $n! \ge 2^{n - 1}$,
    $e^s - 1 \le {=half} \le {=factor}$ for $0 \le s \le {=TWO_FIFTHS}$.
    """
    upper = UPPER.subs(SHARE, ERROR)
    half, factor = SLACK / (1 - SLACK / 2), FIVE_QUARTERS * SLACK
    lower = 1 - (1 - SHARE) * (1 - U) / ((1 + ERROR) * (1 + TOTAL))
    small = {part: 1 / (1 + sympy.Symbol(f"s_{part}", positive=True)) for part in (SHARE, U, ERROR, TOTAL)}
    yield positive_form("the error upwards is the larger one", (worst - lower).subs(small))  # all are below 1
    yield Check("the bound of $e^s - 1$", lambda: _beyond(share, largest, ratio))


def _beyond(share: Expr, largest: Expr, ratio: int) -> Failures:
    """Fails unless s / (1 - s / 2) <= share s up to the largest s, and n! >= ratio^(n - 1) for n >= 1."""
    below = largest / (1 + SLACK)  # runs through 0 < s < largest
    yield from has_negative_coefficient(share - 1 / (1 - below / 2), "the share minus 1 / (1 - s / 2)")
    n = sympy.Symbol("n", integer=True, nonnegative=True)
    yield from not_nonnegative((n + 2) - ratio, f"(n + 2)! / (n + 1)! minus {ratio}")  # and 1! = ratio^0


DISTANCE, REACH = sympy.symbols("D Delta", nonnegative=True)
AXES = sympy.Symbol("n", positive=True)
ROUNDINGS = AXES + 4
DISTANCES = 2 * DISTANCE**2 + 4 * REACH * DISTANCE + 3 * REACH**2


@claim(
    status=Status.ALGEBRA,
    scope=r"$n$ axes with $(n + 3)(n + 4) u \le 1$; positions and centres are integers that floating point holds; "
    r"the errors are after the subtraction of the largest score, up to a constant of the query.",
    justifies=("convert/bounds/rounding.py: literal_error",),
    tests=("convert/certificate/test_certificate.py",),
    is_lemma=True,
)
def score_rounding(*, factor: Expr = ROUNDINGS, distances: Expr = DISTANCES) -> Checks:
    r"""Scores that are not exact.

    For a key at distance $D$ of the target, with $\Delta$ for the length of the centre,

    ```math
    |\mathrm{fl}(s_k) - s_k| \le {=ROUNDINGS}\, u\, \alpha\, {=DISTANCES} .
    ```

    Each term of $s_k = -\alpha |\delta|^2 + 2 \alpha \Delta \cdot \delta$ is rounded at most $n + 2$ times (the
    vector, the product, $n$ additions), and the subtraction of the maximum, whose own error is the same for all keys,
    rounds $\alpha D^2$ once more: together at most $\gamma_{n + 3} \le {=ROUNDINGS * U}$ (`rounded-sum`). And
    $|\delta| \le D + \Delta$.
    """
    together, farthest = AXES + 3, DISTANCE + REACH
    unit = 1 / (together * (together + 1) + SLACK)
    terms = farthest**2 + 2 * REACH * farthest + DISTANCE**2
    yield positive_form(
        "$n + 3$ roundings come to at most $(n + 4) u$, for every $n$", factor * unit - gamma(together, unit)
    )
    yield nonnegative("the triangle inequality for the distances", distances - terms)
