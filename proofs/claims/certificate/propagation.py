"""Justifies ``convert/certificate/network``: how operations pass on a difference between two networks."""

from __future__ import annotations

import sympy

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Status, claim
from .propagation_rules import outside

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


def affine_failures(*, factor: Expr = 1) -> list[str]:
    """Whether one more weight adds at most factor |w| e to the error, and moves the range by its sign."""
    size, error, slack, width, rest = sympy.symbols("w e s d r", nonnegative=True)
    low = sympy.Symbol("l", real=True)
    value, high = low + width, low + width + rest
    failures = outside(size * value, size * low, size * high, "w >= 0")
    failures += outside(-size * value, -size * high, -size * low, "w <= 0")
    passed_on = size * (error - slack)  # w (a - c), where a - c has the sign of w
    return failures + not_nonnegative(factor * size * error - passed_on, "|w| e minus w (a - c)")


def chain_failures(*, own: int = 1, inherited: int = 1) -> list[str]:
    """Whether the difference of two computed layers is what the layer's certificate covers, and what it inherits."""
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
) -> list[str]:
    """Whether no slope of these functions is larger in absolute value."""
    largest = {
        "SiLU": (STEEPEST.subs(X, SILU_EXTREME), silu),
        "GELU": (sympy.diff(X * NORMAL, X).subs(X, sympy.sqrt(2)), gelu),
        "hardswish": (max(abs(HARDSWISH.subs(X, end)) for end in (-3, 3)), hardswish),
        "sigmoid": ((S * (1 - S)).subs(S, sympy.Rational(1, 2)), sigmoid),
        "tanh": ((1 - S**2).subs(S, 0), tanh),
    }
    steeper = {name: value for name, (value, bound) in largest.items() if not value <= bound}
    return [f"{name}: a slope of {float(value):.6f}" for name, value in steeper.items()] + _extreme_failures()


def _extreme_failures() -> list[str]:
    """Whether the slopes are extreme where ``slope_failures`` looks at them."""
    failures = unequal(sympy.diff(SIGMOID, X), SIGMOID * (1 - SIGMOID), "the slope of sigmoid")
    failures += unequal(sympy.diff(sympy.tanh(X), X), 1 - sympy.tanh(X) ** 2, "the slope of tanh")
    failures += unequal(S * (1 - S), sympy.Rational(1, 4) - (S - sympy.Rational(1, 2)) ** 2, "a square completed")
    bent = {"SiLU": SILU_BENT.subs(S, SIGMOID).rewrite(sympy.exp), "GELU": GELU_BENT.subs(PHI, DENSITY)}
    for name, gate in (("SiLU", SIGMOID), ("GELU", NORMAL)):
        slope = sympy.diff(X * gate, X)
        failures += unequal(sympy.diff(slope, X), bent[name], f"the second derivative of {name}")
        failures += unequal(slope + slope.subs(X, -X), 1, f"the slopes of {name} at x and -x")
    share = (1 + 2 / X) / 2  # the sigmoid where tanh(x / 2) = 2 / x
    failures += unequal(share + X * share * (1 - share), STEEPEST, "the slope of SiLU where x tanh(x / 2) = 2")
    is_beyond = SILU_EXTREME * sympy.tanh(SILU_EXTREME / 2) > 2
    return failures + ([] if is_beyond else [f"x tanh(x / 2) is not beyond 2 at {SILU_EXTREME}"])


@claim(
    status=Status.ALGEBRA,
    scope="All values of both networks lie in the ranges that the certificates and the rounding are for. Between "
    "their attention layers, both networks do the same operations.",
    justifies=(
        "convert/certificate/network/certificate.py: certify_network",
        "convert/certificate/network/rules/interval.py: linear_map",
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
    justifies=("convert/certificate/network/rules/pointwise.py: Activation",),
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
