"""Justifies ``convert/certificate/network``: how operations pass on a difference between two networks."""

from __future__ import annotations

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, not_nonnegative, unequal
from ...prover.formula import fill
from . import propagation_rules
from .propagation_rules import PRODUCT

SILU_SLOPE, GELU_SLOPE, HARDSWISH_SLOPE = sympy.Rational(11, 10), sympy.Rational(113, 100), sympy.Rational(3, 2)
SIGMOID_SLOPE, TANH_SLOPE = sympy.Rational(1, 4), sympy.Integer(1)
SILU_EXTREME = sympy.Rational(12, 5)  # beyond the point at which the slope of SiLU is largest
X = sympy.Symbol("x", real=True)
SIGMOID = 1 / (1 + sympy.exp(-X))
DENSITY = sympy.exp(-(X**2) / 2) / sympy.sqrt(2 * sympy.pi)
NORMAL = (1 + sympy.erf(X / sympy.sqrt(2))) / 2


def affine_failures(*, factor: Expr = 1) -> list[str]:
    """Whether one more weight adds at most factor |w| e to the error, and moves the range by its sign."""
    size, error, slack, width, rest = sympy.symbols("w e s d r", nonnegative=True)
    low = sympy.Symbol("l", real=True)
    failures = []
    for sign in (1, -1):
        weight = sign * size
        passed_on = weight * sign * (error - slack)  # |a - c| <= e
        failures += not_nonnegative(factor * size * error - passed_on, f"sign {sign}: |w| e minus w (a - c)")
        value, high = low + width, low + width + rest
        ends = (weight * low, weight * high) if sign > 0 else (weight * high, weight * low)
        failures += not_nonnegative(weight * value - ends[0], f"sign {sign}: w x minus the lower end")
        failures += not_nonnegative(ends[1] - weight * value, f"sign {sign}: the upper end minus w x")
    return failures


def chain_failures(*, own: int = 1, inherited: int = 1) -> list[str]:
    """Whether the difference of two computed layers is what the layer's certificate covers, and what it inherits."""
    names = ("flA(a)", "A(a)", "C(a)", "C(c)", "flC(c)")
    computed, attention, same, other, convolution = (sympy.Symbol(name) for name in names)
    certificate = (computed - attention) + (attention - same) + (other - convolution)
    return unequal(computed - convolution, own * certificate + inherited * (same - other), "flA(a) - flC(c)")


def slope_failures(
    *,
    silu: Expr = SILU_SLOPE,
    gelu: Expr = GELU_SLOPE,
    hardswish: Expr = HARDSWISH_SLOPE,
    sigmoid: Expr = SIGMOID_SLOPE,
    tanh: Expr = TANH_SLOPE,
) -> list[str]:
    """Whether no slope of these functions is larger in absolute value."""
    return [*_silu(silu), *_gelu(gelu), *_hardswish(hardswish), *_saturating(sigmoid, tanh)]


def _silu(bound: Expr) -> list[str]:
    slope = sympy.diff(X * SIGMOID, X)
    failures = unequal(
        sympy.diff(slope, X),
        (SIGMOID * (1 - SIGMOID) * (2 - X * sympy.tanh(X / 2))).rewrite(sympy.exp),
        "the second derivative of SiLU",
    )
    failures += unequal(slope + slope.subs(X, -X), 1, "the slopes of SiLU at x and -x")
    # at the extremum t = tanh(x / 2) = 2 / x, and sigmoid = (1 + t) / 2
    share = (1 + 2 / X) / 2
    failures += unequal(share + X * share * (1 - share), (X + 2) / 4, "the slope of SiLU where x tanh(x / 2) = 2")
    if not SILU_EXTREME * sympy.tanh(SILU_EXTREME / 2) > 2:
        failures.append(f"x tanh(x / 2) is not beyond 2 at {SILU_EXTREME}")
    return failures + _at_most((SILU_EXTREME + 2) / 4, bound, "SiLU")


def _gelu(bound: Expr) -> list[str]:
    slope = sympy.diff(X * NORMAL, X)
    failures = unequal(sympy.diff(slope, X), DENSITY * (2 - X**2), "the second derivative of GELU")
    failures += unequal(slope + slope.subs(X, -X), 1, "the slopes of GELU at x and -x")
    return failures + _at_most(slope.subs(X, sympy.sqrt(2)), bound, "GELU")


def _hardswish(bound: Expr) -> list[str]:
    slope = sympy.diff(X * (X + 3) / 6, X)  # between -3 and 3, where it is linear; 0 and 1 outside
    return [reason for end in (-3, 3) for reason in _at_most(abs(slope.subs(X, end)), bound, f"hardswish at {end}")]


def _saturating(sigmoid: Expr, tanh: Expr) -> list[str]:
    y = sympy.Symbol("y", real=True)
    failures = unequal(sympy.diff(SIGMOID, X), SIGMOID * (1 - SIGMOID), "the slope of sigmoid")
    failures += unequal(sympy.diff(sympy.tanh(X), X), 1 - sympy.tanh(X) ** 2, "the slope of tanh")
    for bound, slope, square in ((sigmoid, y * (1 - y), (y - sympy.Rational(1, 2)) ** 2), (tanh, 1 - y**2, y**2)):
        failures += not_nonnegative(bound - slope - square, f"{bound} - {slope} - {square}")  # a square is at least 0
    return failures


def _at_most(value: Expr, bound: Expr, what: str) -> list[str]:
    return [] if value <= bound else [f"{what}: a slope of {float(value):.6f} > {bound}"]


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_propagation(), _slopes()]


def _propagation() -> Claim:
    return Claim(
        name="error-propagation",
        title="A difference on its way through a network",
        statement=Formula(
            r"|\mathrm{fl} A(a) - \mathrm{fl} C(c)|_o \le \mathrm{certificate}_o + \sum_{c, h} |W_{o,c,h}|\, e_c",
            "|fl A(a) - fl C(c)|_o <= certificate_o + sum_{c,h} |W_{o,c,h}| e_c for an attention layer A with input a "
            "and its convolution C with input c, |a - c| <= e; |f(a) - f(c)| <= L e where f has the Lipschitz "
            "constant L; |fl f(a) - fl f(c)| <= |f(a) - f(c)| + 2 rounding",
        ),
        assumptions=(
            "All values of both networks lie in the ranges that the certificate and the rounding are for.",
            "Between their attention layers, both networks do the same operations.",
        ),
        steps=(
            Step(
                Formula(
                    r"\mathrm{fl}A(a) - \mathrm{fl}C(c) = [\mathrm{fl}A(a) - A(a)] + [A(a) - C(a)] + [C(a) - C(c)]"
                    r" + [C(c) - \mathrm{fl}C(c)]",
                    "flA(a) - flC(c) = [flA(a) - A(a)] + [A(a) - C(a)] + [C(a) - C(c)] + [C(c) - flC(c)]",
                ),
                "The certificate bounds the first, second and fourth bracket for all inputs in its range, $a$ and "
                "$c$ among them.",
            ),
            Step(
                Formula(
                    r"|C(a) - C(c)| \le \sum |W| |a - c|,\quad \sum w^+ l + w^- u \le \sum w x \le \sum w^+ u + w^- l",
                    "|C(a) - C(c)| <= sum |W||a - c|; sum w+ l + w- u <= sum w x <= sum w+ u + w- l for l <= x <= u",
                ),
                "Term by term. Averages and batch norm are such maps; a maximum moves by no more than what it is of.",
            ),
            Step(
                fill(r"a b - c d = $product", "a b - c d = $product", product=PRODUCT),
                "So a product passes on $|a| e_b + |d| e_a$.",
            ),
        ),
        checks=(
            Check("a weight passes on $|w| e$, and the ends of its range", Kind.SYMBOLIC, affine_failures),
            Check("the difference of two computed layers", Kind.SYMBOLIC, chain_failures),
            Check("the difference of two products", Kind.SYMBOLIC, propagation_rules.product_failures),
        ),
        justifies=(
            "conv2attn.convert.certificate.network.certificate.certify_network",
            "conv2attn.convert.certificate.network.rules.interval.linear_map",
        ),
        tests=("convert.certificate.network.test_certificate.test_a_network_stays_within_its_bound",),
    )


def _slopes() -> Claim:
    return Claim(
        name="activation-slopes",
        title="Lipschitz constants of activations",
        statement=fill(
            r"|\mathrm{SiLU}'| \le $silu,\ |\mathrm{GELU}'| \le $gelu,\ |\mathrm{hardswish}'| \le $hardswish,"
            r"\ \sigma' \le $sigmoid,\ \tanh' \le $tanh",
            "|SiLU'| <= $silu, |GELU'| <= $gelu, |hardswish'| <= $hardswish, sigmoid' <= $sigmoid, tanh' <= $tanh",
            silu=SILU_SLOPE,
            gelu=GELU_SLOPE,
            hardswish=HARDSWISH_SLOPE,
            sigmoid=SIGMOID_SLOPE,
            tanh=TANH_SLOPE,
        ),
        assumptions=("GELU is $x Phi(x)$, without an approximation.",),
        steps=(
            Step(
                Formula(
                    r"\mathrm{SiLU}'' = \sigma (1 - \sigma) \bigl(2 - x \tanh \tfrac{x}{2}\bigr),\quad"
                    r" x_0 \tanh \tfrac{x_0}{2} = 2 \implies \mathrm{SiLU}'(x_0) = \frac{x_0 + 2}{4}",
                    "SiLU'' = s (1 - s)(2 - x tanh(x/2)); where x_0 tanh(x_0 / 2) = 2, SiLU'(x_0) = (x_0 + 2) / 4",
                ),
                "$x tanh(x/2)$ grows with $|x|$ and exceeds 2 at 2.4, so $x_0 < 2.4$. $SiLU'(x) + SiLU'(-x) = 1$, so "
                "the smallest slope is 1 minus the largest.",
            ),
            Step(
                Formula(
                    r"\mathrm{GELU}'' = \varphi(x) (2 - x^2),\quad \mathrm{GELU}'(\sqrt 2) = \Phi(\sqrt 2) + \sqrt 2"
                    r" \varphi(\sqrt 2) \approx 1.1289",
                    "GELU'' = phi(x)(2 - x^2), GELU'(sqrt 2) = Phi(sqrt 2) + sqrt 2 phi(sqrt 2) = 1.1289...",
                ),
                "The slope rises between $-sqrt 2$ and $sqrt 2$ only. $GELU'(x) + GELU'(-x) = 1$.",
            ),
            Step(
                Formula(
                    r"\tfrac{1}{4} - \sigma (1 - \sigma) = (\sigma - \tfrac{1}{2})^2,\quad 1 - \tanh^2 \le 1",
                    "1/4 - s (1 - s) = (s - 1/2)^2, 1 - tanh^2 <= 1; hardswish' = (2 x + 3) / 6 between -3 and 3",
                ),
                "Squares are not negative; a linear function is largest at an end.",
            ),
        ),
        checks=(Check("no slope is larger", Kind.SYMBOLIC, slope_failures),),
        justifies=("conv2attn.convert.certificate.network.rules.pointwise.Activation",),
        tests=("proofs.claims.test_rounding.test_the_slopes_of_the_code_are_those_of_the_proof",),
    )
