"""How operations pass on a difference between two networks, for ``convert/certificate/network``.

Known of a tensor in both networks are ends l <= a, c <= u, and |a - c| <= e. A symbol that is at least 0 stands for
every slack in an inequality; what is to be shown is then a polynomial of such symbols without a negative coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from ...prover.checks import Expr, equal, nonnegative, not_nonnegative, unequal
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
    tests=("convert/certificate/network/test_certificate.py",),
)
def error_propagation(*, own: int = 1, inherited: int = 1) -> Checks:
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
    names = ("flA(a)", "A(a)", "C(a)", "C(c)", "flC(c)")
    computed, attention, same, other, convolution = map(sympy.Symbol, names)
    certified = (computed - attention) + (attention - same) + (other - convolution)
    passed_on = own * certified + inherited * (same - other)
    yield Check("a weight passes on $|w| e$, and the ends of its range", affine_failures)
    yield equal("the difference of two computed layers", computed - convolution, passed_on)


@claim(
    status=Status.ALGEBRA,
    scope=r"All real $x$; $\sigma$ is the sigmoid, and GELU is $x \Phi(x)$ without an approximation.",
    justifies=("convert/certificate/network/pointwise.py: Curve",),
    tests=("proofs/claims/test_rounding.py",),
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


def gate_failures(*, low: Callable[[Expr, Expr], Expr] = lambda positive, x: sympy.Integer(0)) -> Failures:
    """Fails unless x s is between min(x, 0) and max(x, 0) for 0 <= s <= 1, as of SiLU, GELU and hardswish."""
    x, s, rest = sympy.symbols("x s r", nonnegative=True)  # s + r stands for 1
    one = s + rest
    yield from outside(x * s, low(one, x), x * one, "x >= 0")
    yield from outside(-x * s, -x * one, -low(one, x), "x <= 0")


@claim(
    status=Status.ALGEBRA,
    scope=r"Real values with $l \le a, c \le u$ and $|a - c| \le e$; likewise $m \le b, d \le v$ and $|b - d| \le g$. "
    r"Both networks compute the same operation by the same program, which gives equal results on equal numbers.",
    justifies=(
        "convert/certificate/network/interval.py: checked, Arithmetic.rounded",
        "convert/certificate/network/pointwise.py: Curve",
    ),
    tests=("convert/certificate/network/test_rules.py",),
    is_lemma=True,
)
def propagation_rules(
    *, quotient: Expr = QUOTIENT, total: Expr = 1, factor: Expr = 1, width: int = 1, roundings: int = 2
) -> Checks:
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
    end, so_far = sympy.symbols("u R", real=True)  # so_far is the sum of some of the w_i x_i, whose w_i sum to W
    weight, weights, p, q, r = sympy.symbols("w W p q r", nonnegative=True)
    mean = total * weights * end - so_far  # not negative, nor with one more value of at most the end
    below, apart, above = sympy.symbols("b a c", nonnegative=True)  # one number of the range is ``apart`` above another
    length = width * (below + apart + above)
    yield Check("sums and differences", sum_failures)
    yield Check("products", product_failures)
    yield equal("quotients by a number", A / B - C / B, quotient)
    yield nonnegative("means", total * (weights + weight) * end - (so_far + weight * (end - p)) - mean)
    yield nonnegative("maxima", end + factor * E - ((end - q) + E - p))  # c_j = M - q, a_j = c_j + e - p, and M = end
    yield Check("a number times $x$, between 0 and 1", gate_failures)
    yield nonnegative("differences of numbers in a range", length - apart, length + apart)
    yield nonnegative("two roundings", roundings * r - ((r - p) + (r - q)))  # in the worst directions
