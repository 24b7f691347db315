"""Justifies ``convert/certificate/network``: how operations pass on a difference between two networks.

Justifies the rules of ``convert/certificate/network``: what operations make of bounds on values and differences.

Known of a tensor in both networks are ends l <= a, c <= u, and |a - c| <= e. A symbol that is at least 0 stands for
every slack in an inequality; what is to be shown is then a polynomial of such symbols without a negative coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim

SILU_SLOPE, GELU_SLOPE, HARDSWISH_SLOPE = sympy.Rational(11, 10), sympy.Rational(113, 100), sympy.Rational(3, 2)
SIGMOID_SLOPE, TANH_SLOPE = sympy.Rational(1, 4), sympy.Integer(1)
SILU_EXTREME = sympy.Rational(12, 5)  # beyond the point at which the slope of SiLU is largest
X, S, PHI = sympy.symbols(r"x sigma \varphi", real=True)
SIGMOID = 1 / (1 + sympy.exp(-X))
DENSITY = sympy.exp(-(X**2) / 2) / sympy.sqrt(2 * sympy.pi)
NORMAL = (1 + sympy.erf(X / sympy.sqrt(2))) / 2
SILU_BENT, GELU_BENT = S * (1 - S) * (2 - X * sympy.tanh(X / 2)), PHI * (2 - X**2)  # second derivatives
STEEPEST = (X + 2) / 4  # the slope of SiLU where x tanh(x / 2) = 2
HARDSWISH = sympy.diff(X * (X + 3) / 6, X)  # between -3 and 3, where it is linear; 0 and 1 outside


def affine_failures(*, factor: Expr = 1) -> Failures:
    """Fails unless one more weight adds at most factor |w| e to the error, and moves the range by its sign."""
    size, error, slack, width, rest = sympy.symbols("w e s d r", nonnegative=True)
    low = sympy.Symbol("l", real=True)
    value, high = low + width, low + width + rest
    yield from outside(size * value, size * low, size * high, "w >= 0")
    yield from outside(-size * value, -size * high, -size * low, "w <= 0")
    passed_on = size * (error - slack)  # w (a - c), where a - c has the sign of w
    yield from not_nonnegative(factor * size * error - passed_on, "|w| e minus w (a - c)")


def chain_failures(*, own: int = 1, inherited: int = 1) -> Failures:
    """Fails unless two computed layers differ by what the layer's certificate covers and what it inherits."""
    names = ("flA(a)", "A(a)", "C(a)", "C(c)", "flC(c)")
    computed, attention, same, other, convolution = (sympy.Symbol(name) for name in names)
    own_difference = (computed - attention) + (attention - same) + (other - convolution)
    return unequal(computed - convolution, own * own_difference + inherited * (same - other), "flA(a) - flC(c)")


def slope_failures(
    *,
    silu: Expr = SILU_SLOPE,
    gelu: Expr = GELU_SLOPE,
    hardswish: Expr = HARDSWISH_SLOPE,
    sigmoid: Expr = SIGMOID_SLOPE,
    tanh: Expr = TANH_SLOPE,
) -> Failures:
    """Fails unless no slope of these functions is larger in absolute value."""
    largest = {
        "SiLU": (STEEPEST.subs(X, SILU_EXTREME), silu),
        "GELU": (sympy.diff(X * NORMAL, X).subs(X, sympy.sqrt(2)), gelu),
        "hardswish": (max(abs(HARDSWISH.subs(X, end)) for end in (-3, 3)), hardswish),
        "sigmoid": ((S * (1 - S)).subs(S, sympy.Rational(1, 2)), sigmoid),
        "tanh": ((1 - S**2).subs(S, 0), tanh),
    }
    steeper = {name: value for name, (value, bound) in largest.items() if not value <= bound}
    yield from (f"{name}: a slope of {float(value):.6f}" for name, value in steeper.items())
    yield from _extreme_failures()


def _extreme_failures() -> Failures:
    """Fails unless the slopes are extreme where ``slope_failures`` looks at them."""
    yield from unequal(sympy.diff(SIGMOID, X), SIGMOID * (1 - SIGMOID), "the slope of sigmoid")
    yield from unequal(sympy.diff(sympy.tanh(X), X), 1 - sympy.tanh(X) ** 2, "the slope of tanh")
    yield from unequal(S * (1 - S), sympy.Rational(1, 4) - (S - sympy.Rational(1, 2)) ** 2, "a square completed")
    bent = {"SiLU": SILU_BENT.subs(S, SIGMOID).rewrite(sympy.exp), "GELU": GELU_BENT.subs(PHI, DENSITY)}
    for name, gate in (("SiLU", SIGMOID), ("GELU", NORMAL)):
        slope = sympy.diff(X * gate, X)
        yield from unequal(sympy.diff(slope, X), bent[name], f"the second derivative of {name}")
        yield from unequal(slope + slope.subs(X, -X), 1, f"the slopes of {name} at x and -x")
    share = (1 + 2 / X) / 2  # the sigmoid where tanh(x / 2) = 2 / x
    yield from unequal(share + X * share * (1 - share), STEEPEST, "the slope of SiLU where x tanh(x / 2) = 2")
    is_beyond = SILU_EXTREME * sympy.tanh(SILU_EXTREME / 2) > 2
    yield from ([] if is_beyond else [f"x tanh(x / 2) is not beyond 2 at {SILU_EXTREME}"])


@claim(
    status=Status.ALGEBRA,
    scope="All values of both networks lie in the ranges that the certificates and the rounding are for. Between "
    "their attention layers, both networks do the same operations.",
    justifies=(
        "convert/certificate/network/certificate.py: certify_network",
        "convert/certificate/network/interval.py: linear_map",
    ),
    tests=("convert/certificate/network/test_certificate.py: test_networks_stay_within_their_bound_and_most_have_one",),
)
def error_propagation() -> Checks:
    r"""A difference on its way through a network.

    For an attention layer $A$ with input $a$ and its convolution $C$ with input $c$, where $|a - c| \le e$ for each
    channel,

    ```math
    |\mathrm{fl}A(a) - \mathrm{fl}C(c)|_o \le \mathrm{certificate}_o + \sum_{c, h} |W_{o,c,h}|\, e_c .
    ```

    What other operations pass on is listed in `propagation-rules`.

    **Proof.** The difference is the sum of four:

    ```math
    [\mathrm{fl}A(a) - A(a)] + [A(a) - C(a)] + [C(a) - C(c)] + [C(c) - \mathrm{fl}C(c)] .
    ```

    The certificate bounds the first, the second and the fourth bracket for all inputs in its range, $a$ and $c$ among
    them. The third is at most $\sum |W||a - c|$, term by term. In the same way $l \le x \le u$ gives
    $\sum w^+ l + w^- u \le \sum w x \le \sum w^+ u + w^- l$ for the values, with $w = w^+ + w^-$ split by sign.
    Averages and batch norm are such maps. $\square$
    """
    yield Check("a weight passes on $|w| e$, and the ends of its range", affine_failures)
    yield Check("the difference of two computed layers", chain_failures)


@claim(
    status=Status.ALGEBRA,
    scope=r"All real $x$; $\sigma$ is the sigmoid, and GELU is $x \Phi(x)$ without an approximation.",
    justifies=("convert/certificate/network/rules.py: Activation",),
    tests=("proofs/claims/test_rounding.py: test_the_slopes_of_the_code_are_those_of_the_proof",),
    is_lemma=True,
)
def activation_slopes() -> Checks:
    r"""Lipschitz constants of activations.

    ```math
    |\mathrm{SiLU}'| \le {=SILU_SLOPE}, \quad |\mathrm{GELU}'| \le {=GELU_SLOPE}, \quad
    |\mathrm{hardswish}'| \le {=HARDSWISH_SLOPE}, \quad \sigma' \le {=SIGMOID_SLOPE}, \quad \tanh' \le {=TANH_SLOPE} .
    ```

    Slopes are extreme where the second derivative vanishes. That of SiLU is ${=SILU_BENT}$. As $x \tanh \frac{x}{2}$
    grows with $|x|$, it is 0 at one $|x| < {=SILU_EXTREME}$, where the slope is ${=STEEPEST}$ for $x > 0$, less than
    ${=STEEPEST.subs(X, SILU_EXTREME)}$. That of GELU is ${=GELU_BENT}$, with the density $\varphi$ of the normal
    distribution. The slopes of either at $x$ and $-x$ sum to 1, so the smallest is 1 minus the largest. Between $-3$
    and 3 hardswish has the slope ${=sympy.expand(HARDSWISH)}$, largest at an end. The slopes ${=S * (1 - S)}$ of the
    sigmoid and $1 - \tanh^2$ of the hyperbolic tangent are constants minus squares. ELU has the slopes 1 and, below 0,
    $\alpha e^x \le \alpha$.
    """
    yield Check("no slope is larger", slope_failures)


A, B, C, D = sympy.symbols("a b c d", real=True)  # values of one network, a and b, and of the other, c and d
E, G = sympy.symbols("e g", nonnegative=True)  # |a - c| <= e, |b - d| <= g
PRODUCT = A * (B - D) + D * (A - C)  # of which every factor is bounded
QUOTIENT = (A - C) / B


def outside(value: Expr, low: Expr, high: Expr, what: str) -> Failures:
    """Returns a failure for each end that the value is not known to keep."""
    below, above = f"{what}: value minus lower end", f"{what}: upper end minus value"
    return not_nonnegative(value - low, below) + not_nonnegative(high - value, above)


def sum_failures(*, error: Expr = E + G) -> Failures:
    """Fails unless a + b and a - b are between the sums of their ends, and differ by at most e + g.

    The difference is (a - c) + (b - d) or (a - c) - (b - d); each of its terms is e - p or g - q, from above.
    """
    low, other_low = sympy.symbols("l m", real=True)
    w, x, r, s, p, q = sympy.symbols("w x r s p q", nonnegative=True)
    a, b = low + w, other_low + x
    high, other_high = a + r, b + s
    yield from not_nonnegative(error - ((E - p) + (G - q)), "bound minus difference")
    yield from outside(a + b, low + other_low, high + other_high, "a + b")
    yield from outside(a - b, low - other_high, high - other_low, "a - b")


def product_failures(
    *, identity: Expr = PRODUCT, corners: Callable[[Expr, Expr], Expr] = lambda s, t: s * t
) -> Failures:
    """Fails unless a b - c d is the identity, and a b a weighted mean of the products of the ends."""
    low, high, other_low, other_high, s, t = sympy.symbols("l u m v s t", real=True)  # 0 <= s, t <= 1
    ends, others = {low: 1 - s, high: s}, {other_low: 1 - t, other_high: t}  # a and b are means of their ends
    a, b = (sum(share * end for end, share in part.items()) for part in (ends, others))
    weights = {x * y: corners(ends[x], others[y]) for x, y in product(ends, others)}
    yield from unequal(A * B - C * D, identity, "a b - c d")
    yield from unequal(a * b, sum(weight * corner for corner, weight in weights.items()), "a b minus the mean")
    yield from unequal(sum(weights.values()), 1, "the sum of the weights")


def quotient_failures(*, identity: Expr = QUOTIENT) -> Failures:
    """Fails unless a / b - c / b is the identity: a positive number divides ends and difference."""
    return unequal(A / B - C / B, identity, "a / b - c / b")


def mean_failures(*, total: Expr = 1) -> Failures:
    """Fails unless sum_i w_i x_i is at most an end times total = sum_i w_i, for w_i >= 0: one value after the other.

    What is at most an end is x_i (at most u), -x_i (at most -l), and x_i - y_i (at most e).
    """
    end, so_far = sympy.symbols("u R", real=True)
    weight, weights, slack = sympy.symbols("w W s", nonnegative=True)
    before = total * weights * end - so_far  # is not negative; so_far is the sum of all values before
    after = total * (weights + weight) * end - (so_far + weight * (end - slack))
    return not_nonnegative(after - before, "what one more value adds to the bound minus the sum")


def maximum_failures(*, factor: Expr = 1) -> Failures:
    """Fails unless max_i a_i <= max_i c_i + factor e if a_i <= c_i + e for all i; the rest is by symmetry.

    Whichever a_j is the maximum: c_j is M - b, with M = max_i c_i, and a_j is c_j + e - p.
    """
    top, (below, slack) = sympy.Symbol("M", real=True), sympy.symbols("b p", nonnegative=True)
    return not_nonnegative(top + factor * E - ((top - below) + E - slack), "bound minus a_j")


def gate_failures(*, low: Callable[[Expr, Expr], Expr] = lambda positive, x: sympy.Integer(0)) -> Failures:
    """Fails unless x s is between min(x, 0) and max(x, 0) for 0 <= s <= 1, as of SiLU, GELU and hardswish."""
    x, s, rest = sympy.symbols("x s r", nonnegative=True)  # s + r stands for 1
    one = s + rest
    yield from outside(x * s, low(one, x), x * one, "x >= 0")
    yield from outside(-x * s, -x * one, -low(one, x), "x <= 0")


def range_failures(*, width: int = 1) -> Failures:
    """Fails unless |a - c| <= width (u - l) for two numbers between l and u."""
    below, apart, above = sympy.symbols("w r x", nonnegative=True)  # one is r above the other
    whole = width * (below + apart + above)
    return [reason for sign in (1, -1) for reason in not_nonnegative(whole - sign * apart, f"sign {sign}: u - l minus")]


def rounding_failures(*, roundings: int = 2) -> Failures:
    """Fails unless |fl f - fl g| <= |f - g| + roundings r if both are rounded with an error of at most r."""
    f, g = sympy.symbols("f g", real=True)
    r, p, q = sympy.symbols("r p q", nonnegative=True)
    computed = (f + r - p) - (g - r + q)  # the worst signs; the others are symmetric
    return not_nonnegative((f - g) + roundings * r - computed, "bound minus difference")


@claim(
    status=Status.ALGEBRA,
    scope=r"Real values with $l \le a, c \le u$ and $|a - c| \le e$; likewise $m \le b, d \le v$ and $|b - d| \le g$. "
    r"Both networks compute the same operation by the same program, which gives equal results on equal numbers.",
    justifies=(
        "convert/certificate/network/interval.py: checked, Arithmetic.rounded",
        "convert/certificate/network/rules.py: Activation",
    ),
    tests=("convert/certificate/network/test_rules.py: test_an_operation_stays_within_its_bounds",),
    is_lemma=True,
)
def propagation_rules() -> Checks:
    r"""Rules that carry bounds on values and on differences through operations.

    | operation | bounds on its value | bound on its difference |
    | --- | --- | --- |
    | $a + b$, $a - b$ | sums and differences of the ends | ${=E + G}$ |
    | $a b$ | smallest and largest product of ends | $\vert a \vert g + \vert d \vert e$, as $a b - c d = {=PRODUCT}$ |
    | $a / b$, one number $b > 0$ | $l / b$, $u / b$ | $e / b$, as $a / b - c / b = {=QUOTIENT}$ |
    | means: $\sum_i w_i x_i$, $w_i \ge 0$, $\sum_i w_i = 1$ | $l$, $u$ | $e$ |
    | maximum, minimum | those of the ends | $e$ |
    | $f(a)$ | $f(l)$, $f(u)$ where $f$ grows | $e$ times the largest slope |
    | $x s$, $0 \le s \le 1$ | $\min(x, 0)$, $\max(x, 0)$ | by the slope |
    | any | $l$, $u$ | $u - l$; with roundings of at most $r$, $2 r$ more |

    Moving, joining and padding with a constant give values of the input or the constant. A product is linear in each
    factor, so it is a mean of its values at the ends. A maximum is some $a_j \le c_j + e$, so at most the other
    maximum plus $e$. Averages and interpolation are means; with zero padding 0 is among the values. ReLU and clamping
    are maxima and minima with a constant; SiLU, GELU and hardswish are of the form $x s$. Each network rounds once;
    where both compute on the same numbers, the difference stays 0.
    """
    yield Check("sums and differences", sum_failures)
    yield Check("products", product_failures)
    yield Check("quotients by a number", quotient_failures)
    yield Check("means", mean_failures)
    yield Check("maxima", maximum_failures)
    yield Check("a number times $x$, between 0 and 1", gate_failures)
    yield Check("differences of numbers in a range", range_failures)
    yield Check("two roundings", rounding_failures)
