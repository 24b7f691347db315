r"""Bounds at depth, for ``convert/certificate/network``: linear maps near an image, and a test of all their ranges.

Every symbol that is at least 0 stands for a slack; what is to be shown is then a quotient of polynomials of such
symbols without a negative coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import comb

import sympy

from ...prover.checks import Expr, all_equal, equal, has_negative_coefficient, positive_form, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim

P, Q, A, B, R = sympy.symbols("p q a b r", nonnegative=True)
BELOW, STEP = sympy.Symbol("s", real=True), sympy.Symbol("d", nonnegative=True)
ABOVE = BELOW + STEP  # slopes below and above the kink at 0; where they fall, -f has these
V, M, Z, X, T, L, H = sympy.symbols("v M z x t l h", real=True)
HALF, EIGHTH = sympy.Rational(1, 2), sympy.Rational(1, 8)
SIGMOID_BEND, TANH_BEND = 1 / (6 * sympy.sqrt(3)), 4 / (3 * sympy.sqrt(3))


def chord(below: Expr, above: Expr, left: Expr, right: Expr) -> Expr:
    """The slope of the chord from -left to right of a function with a kink at 0."""
    return (above * right + below * left) / (left + right)


def kink_failures(*, end: Expr = 1, half: Expr = HALF) -> Failures:
    """Fails unless f(x) - lambda x is between 0 and twice eta on both sides of a kink, with the chord's slope."""
    for at_left, place in ((False, A), (True, -B)):
        left, right = (P, A + R) if not at_left else (B + R, Q)
        slope = chord(BELOW, ABOVE, left, right * end)
        rest = (BELOW if at_left else ABOVE) * place - slope * place
        whole = 2 * half * STEP * left * right / (left + right)
        yield from has_negative_coefficient(sympy.simplify(rest), "what the chord leaves")
        yield from has_negative_coefficient(sympy.simplify(whole - rest), "twice the half of it, less what it leaves")


def clamp_failures(*, slope: Expr = None) -> Failures:
    """Fails unless a clamp leaves least at its lower end, most at its upper one, and the same at both of the range."""
    low, inside, before, behind = sympy.symbols("k m b_1 b_2", positive=True)
    ends = {"l": low - before, "k_1": low, "k_2": low + inside, "h": low + inside + behind}
    steep = inside / (before + inside + behind) if slope is None else slope
    values = {"l": low, "k_1": low, "k_2": low + inside, "h": low + inside}
    left = {name: values[name] - steep * ends[name] for name in ends}
    yield from unequal(left["l"], left["h"], "what is left at both ends")
    yield from has_negative_coefficient(sympy.simplify(left["l"] - left["k_1"]), "the lower kink is least")
    yield from has_negative_coefficient(sympy.simplify(left["k_2"] - left["h"]), "the upper kink is most")


def curve_pairs(*, tangent: Expr = HALF, across: Expr = EIGHTH) -> Mapping[str, tuple[Expr, Expr]]:
    """A parabola, whose second derivative is M everywhere, beside what tangent and chord are said to leave."""
    parabola = M * X**2 / 2
    slope, middle = (parabola.subs(X, H) - parabola.subs(X, L)) / (H - L), (L + H) / 2
    straight = parabola.subs(X, L) + slope * (middle - L)
    return {
        "a tangent": (parabola - (parabola.subs(X, Z) + M * Z * (X - Z)), tangent * M * (X - Z) ** 2),
        "a chord": (straight - parabola.subs(X, middle), across * M * (H - L) ** 2),
    }


def bend_pairs(*, sigmoid: Expr = SIGMOID_BEND, tanh: Expr = TANH_BEND) -> Mapping[str, tuple[Expr, Expr]]:
    """How far squares of second derivatives are below those of their bounds, as products that are not negative.

    With v = (1 - 2 s)^2 for the sigmoid s, and v = t^2 for the hyperbolic tangent, 0 <= v <= 1.
    """
    below = (3 * V - 1) ** 2 * (4 - 3 * V)
    return {
        "sigmoid": (sigmoid**2 - ((1 - V) / 4) ** 2 * V, below / 432),
        "tanh": (tanh**2 - 4 * V * (1 - V) ** 2, 4 * below / 27),
    }


def curvature_pairs(*, variance: Expr = 1, turned: Expr = 3) -> Mapping[str, tuple[Expr, Expr]]:
    """Second derivatives of softmax and of a norm along a line."""
    scores, moves = sympy.symbols("x_1:4", real=True), sympy.symbols("d_1:4", real=True)
    exps = [sympy.exp(score + T * move) for score, move in zip(scores, moves, strict=True)]
    shares = [one / sum(exps) for one in exps]
    mean = sum(share * move for share, move in zip(shares, moves, strict=True))
    spread = sum(share * (move - mean) ** 2 for share, move in zip(shares, moves, strict=True))
    bent = shares[0] * ((moves[0] - mean) ** 2 - variance * spread)
    g, e, first, second, square = sympy.symbols("g e B A Q", positive=True)
    scale = sympy.sqrt(square + 2 * first * T + second * T**2)
    norm = sympy.diff((g + T * e) / scale, T, 2).subs(T, 0)
    s = sympy.sqrt(square)
    return {
        "softmax": (sympy.simplify((sympy.diff(shares[0], T, 2) - bent).subs(T, 0)), sympy.Integer(0)),
        "norm": (norm, -2 * e * first / s**3 - g * second / s**3 + turned * g * first**2 / s**5),
    }


def bend_failures(*, silu: float = 0.5, gelu: float = 2 / math.sqrt(2 * math.pi)) -> Failures:
    """Fails unless the second derivatives of SiLU and GELU are within these bounds at points of a line."""
    for x in (n / 64 for n in range(-1280, 1281)):
        s, density = 1 / (1 + math.exp(-x)), math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        bent = {"SiLU": (s * (1 - s) * (2 - x * math.tanh(x / 2)), silu), "GELU": (density * (2 - x * x), gelu)}
        yield from (f"{name} at {x}: {value}" for name, (value, most) in bent.items() if abs(value) > most + 1e-12)


def share_failures(*, growth: float = 2.0) -> Failures:
    """Fails unless a share of softmax grows by at most e^(growth delta) when no score moves by more than delta."""
    scores, delta = (0.3, -1.2, 2.0), 0.7
    before = [math.exp(x) / sum(map(math.exp, scores)) for x in scores]
    for signs in product((-1, 0, 1), repeat=3):
        moved = [math.exp(x + sign * delta) for x, sign in zip(scores, signs, strict=True)]
        for one, share in zip(moved, before, strict=True):
            if one / sum(moved) > share * math.exp(growth * delta) * (1 + 1e-12):
                yield f"a share of {share} becomes {one / sum(moved)}"


def power_pairs(*, power: Expr = 1, rate: Expr = 1) -> Mapping[str, tuple[Expr, Expr]]:
    """Second derivatives of powers and of exponentials, and what quotients leave."""
    x, e, a, b, da, db = sympy.symbols("x e a b d_a d_b", positive=True)
    quotient = (a + da) / (b + db) - a / b - (da - a / b * db) / b
    return {
        "a power": (sympy.diff(x**e, x, 2), power * e * (e - 1) * x ** (e - 2)),
        "an exponential": (sympy.diff(a**x, x, 2), rate * sympy.log(a) ** 2 * a**x),
        "a quotient": (quotient, -(da - a / b * db) * db / (b * (b + db))),
    }


def norm_failures(*, most: Expr = 1) -> Failures:
    """Fails unless the second derivative of a 2-norm along a line is at most |d|^2 over the norm, in two dimensions."""
    v, w, d, e = sympy.symbols("v w d e", real=True)
    size = sympy.sqrt((v + T * d) ** 2 + (w + T * e) ** 2)
    bent = sympy.simplify(sympy.diff(size, T, 2).subs(T, 0) * (v**2 + w**2) ** sympy.Rational(3, 2))
    yield from unequal(most * (d**2 + e**2) * (v**2 + w**2) - bent, (v * d + w * e) ** 2, "what it is below by")


@claim(
    status=Status.INSTANCES,
    scope="Real numbers. A range that passes a kink has it inside; other ranges lie on one piece of the function.",
    coq=("Ranges.v: chord_encloses, chord_in_the_middle",),
    justifies=(
        "convert/certificate/network/pointwise.py: Curve, multiplied, divided, root, exponential, wave",
        "convert/certificate/network/products.py: Weighted",
        "convert/certificate/network/moved.py: maximum",
        "convert/certificate/network/normalised.py: norm, shared, spread",
    ),
    tests=("convert/certificate/network/test_slopes.py",),
)
def chords(
    *,
    end: Expr = 1,
    half: Expr = HALF,
    slope: Expr = None,
    tangent: Expr = HALF,
    across: Expr = EIGHTH,
    sigmoid: Expr = SIGMOID_BEND,
    tanh: Expr = TANH_BEND,
    variance: Expr = 1,
    turned: Expr = 3,
    more: Expr = 1,
    crossed: Expr = 1,
    silu: float = 0.5,
    gelu: float = 2 / math.sqrt(2 * math.pi),
    growth: float = 2.0,
    last: Expr = 4,
    power: Expr = 1,
    rate: Expr = 1,
    most: Expr = 1,
) -> Checks:
    r"""Operations as linear maps on a range, and what these leave.

    A function with the slopes $s$ below and $s + d$ above a kink at 0, on $[-p, q]$: with the chord's slope
    $\lambda = {=chord(BELOW, ABOVE, P, Q)}$,

    ```math
    0 \le f(x) - \lambda x \le {=STEP * P * Q / (P + Q)} .
    ```

    So $f(x) = \lambda x + \mu + e$ with $|e| \le \eta$, where $\mu = \eta$ is half of that: for a rectifier ($s = 0$,
    $d = 1$), a leaky one, the absolute value ($s = -1$, $d = 2$), and either end of a clamp. What a clamp leaves on a
    range with both its ends is least at the lower, most at the upper one, and equal at the ends of the range.

    A maximum is the value at a chosen place and between 0 and the most that others may exceed it by.

    A function with $|f''| \le M$ leaves $M (x - z)^2 / 2$ of its tangent at $z$, and $M (h - l)^2 / 8$ of a chord, by
    Taylor's theorem; a parabola, which is checked, reaches both, so neither constant can be smaller. The
    second derivative of the sigmoid is at most ${=SIGMOID_BEND}$, of $\tanh$ ${=TANH_BEND}$, of SiLU $1/2$, of GELU
    $2 \varphi(0)$: that of SiLU is $\sigma (1 - \sigma) (2 - x \tanh \frac{x}{2})$ with $\sigma (1 - \sigma) \le 1/4$
    and $|x| \sigma (1 - \sigma) \le |x| e^{-|x|} \le 1/e$; that of GELU is $\varphi (2 - x^2)$ with
    $x^2 \varphi \le 2 \varphi(0) / e$.

    A product leaves $d_x d_y$. Softmax along a line has $p'' = p ((d - \bar d)^2 - \operatorname{Var} d)$, with the
    mean $\bar d$ and the variance of $d$ under $p$: at most $4 \delta^2 p$ for $|d| \le \delta$, and $p$ grows by at
    most $e^{2 \delta}$. A norm $y = g / s$ with $s^2 = Q + 2 B t + A t^2$ along a line has
    $y'' = -2 e B / s^3 - g A / s^3 + 3 g B^2 / s^5$, where $|B| \le s r$ and $A = r^2$ for the root mean square $r$ of
    $e$: at most $(2 |e| r + {=last} |y| r^2) / s^2$.

    Powers have $(x^e)'' = e (e - 1) x^{e-2}$, largest at an end of a range of positive numbers, exponentials
    $(b^x)'' = (\ln b)^2 b^x$, sine and cosine at most 1. A quotient $a / b$ leaves
    $-(d_a - \frac{a}{b} d_b) d_b / (b (b + d_b))$ of its slope. A 2-norm has second derivatives of at most
    $|d|^2 / |v|$ along a line in the direction $d$, and its square leaves $|d|^2$. A convolution of values with weights
    that the network computes is a product of both.
    """
    yield Check("a chord past a kink", lambda: kink_failures(end=end, half=half))
    yield Check("a clamp with both its ends in the range", lambda: clamp_failures(slope=slope))
    yield all_equal("tangents and chords of a curve", curve_pairs(tangent=tangent, across=across))
    yield all_equal("second derivatives of sigmoid and tanh", bend_pairs(sigmoid=sigmoid, tanh=tanh))
    yield all_equal(
        "second derivatives of softmax and of a norm", lambda: curvature_pairs(variance=variance, turned=turned)
    )
    yield positive_form("a maximum of two", more * (A + R) - A)  # the most, less what the other exceeds by
    yield Check("bends of SiLU and GELU", lambda: bend_failures(silu=silu, gelu=gelu), "at 2,561 points each")
    yield Check("the growth of a share", lambda: share_failures(growth=growth), "27 moves of three scores")
    e, g, s, r = sympy.symbols("e g s r", positive=True)
    whole = 2 * e * (s * r) / s**3 + g * r**2 / s**3 + 3 * g * (s * r) ** 2 / s**5
    yield equal("a norm's second derivative", whole, (2 * e * r + last * (g / s) * r**2) / s**2)
    yield all_equal("powers, exponentials, quotients", lambda: power_pairs(power=power, rate=rate))
    yield Check("a 2-norm", lambda: norm_failures(most=most))
    x, y, dx, dy = sympy.symbols("x y d_x d_y", real=True)
    yield equal("a product", (x + dx) * (y + dy) - (x * y + x * dy + y * dx), crossed * dx * dy)


def induction_failures(*, factor: Fraction = Fraction(1), rest: Fraction = Fraction(1)) -> Failures:
    """Fails unless numbers of two rectified layers with every sign of every rounding stay within factor times R."""
    weights = ((Fraction(2), Fraction(-1)), (Fraction(1, 2), Fraction(3))), (Fraction(-1), Fraction(2))
    image, rho = (Fraction(1, 10), Fraction(1, 5)), Fraction(1, 8)

    def first(signs: tuple[int, ...]) -> list[Fraction]:
        rows = zip(weights[0], signs, strict=True)
        return [sum((w * x for w, x in zip(row, image, strict=True)), Fraction()) + sign * rho for row, sign in rows]

    centers, maps = first((0, 0)), []
    for center in centers:
        low, high = center - rho, center + rho
        if low < 0 < high:
            steep = high / (high - low)
            maps.append((steep, -steep * low / 2, -steep * low / 2 * rest))
        else:
            maps.append((Fraction(low >= 0), Fraction(), Fraction()))
    top = sum((w * (s * c + m) for w, c, (s, m, _) in zip(weights[1], centers, maps, strict=True)), Fraction())
    reach = rho + sum((abs(w) * (s * rho + e) for w, (s, _, e) in zip(weights[1], maps, strict=True)), Fraction())
    for signs in product((-1, 0, 1), repeat=3):
        hidden = [max(x, Fraction()) for x in first(signs[:2])]
        found = sum((w * x for w, x in zip(weights[1], hidden, strict=True)), Fraction()) + signs[2] * rho
        if abs(found - top) > factor * reach:
            yield f"roundings of signs {signs}: {found - top} is beyond {factor * reach}"


@claim(
    status=Status.COQ,
    scope="A finite graph of operations. Each is, on the ranges of its operands, a linear map, what the map leaves and "
    "a rounding, both bounded; the ranges that are tested are $c_u \\pm D_u$, all others follow from them.",
    justifies=("convert/certificate/network/linearised.py: Linearised",),
    coq=("Ranges.v: every_number_is_in_range, ranges_hold, a_backward_pass_that_errs",),
    tests=("convert/certificate/network/test_images.py",),
)
def ranges_hold(*, factor: Fraction = Fraction(1), rest: Fraction = Fraction(1), wrong: Expr = 1) -> Checks:
    r"""If $R_u \le D_u$ at every unit, every program stays within its ranges, at any depth.

    $R_u = \sum_v |J_{vu}| e_v$ for the bounds $e_v$ of what an operation's rounding and its map leave, with fixed
    matrices $J_{vu}$ along all paths.

    **Proof.** Order the numbers of a program as the graph does, and let $u$ be the first that is out of its range. All
    of its ancestors are in theirs, so up to $u$ every operation is its linear map and at most $e_v$ more. Hence
    $d_u = \sum_v J_{vu} (r_v + s_v)$ exactly, and $|d_u| \le R_u \le D_u$: $u$ is in its range. $\square$

    A backward pass in floating point gives $g$ with $g = J^T g' + h$ in place of $J^T g'$. The sum of
    $g_w (d_w - \sum_p J_{pw} d_p - \tau_w) = 0$ over all operations is, with $\tau = r + s$,

    ```math
    d_{out} = \sum_w g_w \tau_w + \sum_w h_w d_w ,
    ```

    so that $\sum_w |h_w| D_w$ covers its rounding.
    """
    yield Check(
        "two layers with a rectifier, every sign of every rounding",
        lambda: induction_failures(factor=factor, rest=rest),
        "one network in rational numbers",
    )
    j, k, t0, t1, t2, h0, h1 = sympy.symbols("j k t_0 t_1 t_2 h_0 h_1", real=True)
    d0, d1, d2 = t0, j * t0 + t1, k * (j * t0 + t1) + t2
    g2 = sympy.Integer(1)
    g1 = k * g2 + h1
    g0 = j * g1 + h0
    yield equal("a backward pass that errs", d2, g0 * t0 + g1 * t1 + g2 * t2 - wrong * (h0 * d0 + h1 * d1))


@claim(
    status=Status.ALGEBRA,
    scope="Independent standard Cauchy numbers $X_v$, of the density $1 / (\\pi (1 + x^2))$, and fixed numbers $w_v$.",
    justifies=("convert/certificate/network/proof.py: prove",),
    tests=("convert/certificate/network/test_images.py",),
)
def cauchy_scale(*, density: Expr = 1, share: Expr = 2) -> Checks:
    r"""A sum of Cauchy numbers is one whose scale is the 1-norm of their factors.

    $\sum_v w_v X_v$ is $\sum_v |w_v|$ times a standard one, which is within $\pm x$ with probability
    $\frac{2}{\pi} \arctan x$.

    **Proof.** The characteristic function of $X$ is $e^{-|t|}$: it is integrable, and its inverse transform is
    $\frac{1}{\pi} \int_0^\infty e^{-t} \cos(t x) dt$, the density. So that of the sum is
    $\prod_v e^{-|w_v t|} = e^{-|t| \sum_v |w_v|}$. $\square$
    """
    x, t = sympy.symbols("x t", positive=True)
    transformed = sympy.integrate(sympy.exp(-t) * sympy.cos(t * x), (t, 0, sympy.oo), conds="none")
    yield equal("the inverse transform is the density", sympy.simplify(transformed), density / (1 + x**2))
    yield equal(
        "the probability's slope is twice the density",
        sympy.diff(share / sympy.pi * sympy.atan(x), x),
        2 / (sympy.pi * (1 + x**2)),
    )


def tail_failures(*, start: int = 0) -> Failures:
    """Fails unless the sum of the code's terms is the probability, counted over all outcomes of few columns."""
    for columns, inside in product(range(1, 6), (Fraction(1, 3), Fraction(3, 8))):
        for votes in range(columns + 1):
            counted = sum(
                (
                    inside ** sum(outcome) * (1 - inside) ** (columns - sum(outcome))
                    for outcome in product((0, 1), repeat=columns)
                    if sum(outcome) >= votes
                ),
                Fraction(),
            )
            terms = range(votes + start, columns + 1)
            summed = sum((comb(columns, n) * inside**n * (1 - inside) ** (columns - n) for n in terms), Fraction())
            if summed != counted:
                yield f"{votes} of {columns}: {summed}, not {counted}"


@claim(
    status=Status.INSTANCES,
    scope=r"$R, D > 0$ fixed before the numbers are drawn; columns are independent. Each column $\tilde y$ of the test "
    r"is one of exact numbers but for $\kappa R$ by rounding, and $\kappa' R$ by the grid with probability $1 - P$.",
    justifies=("convert/certificate/network/proof.py: share_within, binomial_tail, plan",),
    tests=("convert/certificate/network/test_proof.py",),
)
def level_of_the_test(
    *, rounding: Expr = 1, start: int = 0, tail: Expr = 1, square: Expr = 1, both: Expr = 2
) -> Checks:
    r"""Wrong ranges pass with probability at most $P(\operatorname{Binomial}(k, q) \ge m)$, whatever their number.

    With $q = \frac{2}{\pi} \arctan(x + \kappa + \kappa') + P$ and $P = \frac{4}{\pi} \sqrt{N \gamma / \kappa'}$.

    **Proof.** If ranges are wrong, some unit has $R > D$: one that the numbers of no column decide. To pass, $m$ of its
    $k$ columns must be within $x D$, so the exact numbers within $x D + (\kappa + \kappa') R \le (x + \kappa + \kappa')
    R$, which each is with probability at most $q$ (`cauchy-scale`). Columns are independent. No union over units is
    needed.

    *Rounding.* A column's local rounding is at most $\kappa e_v$ at every $v$, which is checked. It adds to what is
    drawn there, and so at $u$ at most $\kappa \sum_v |J_{vu}| e_v = \kappa R$.

    *Grid.* An argument of $\tan$ that errs by $\gamma$ moves $X$ by about $\gamma X^2$ where $X$ is large, and so the
    column at $u$ by $\gamma R \sum_v w_v X_v^2$, for the shares $w_v = |J_{vu}| e_v / R$, which sum to 1. Let
    $S = \kappa' / \gamma$. Either some $w_v X_v^2 > S$, or the sum of the others exceeds $S$; with
    $a = \sqrt{S / w_v}$, by Markov's inequality,

    ```math
    P \le \sum_v \Bigl[ P(|X| > a) + \frac{w_v}{S} E[X^2; |X| \le a] \Bigr]
      \le \sum_v \frac{2}{\pi} \Bigl[ \frac{1}{a} + \frac{a w_v}{S} \Bigr]
      = \frac{4}{\pi} \sum_v \sqrt{w_v / S} \le \frac{4}{\pi} \sqrt{N / S} . \qquad \square
    ```
    """
    x, d, kappa, slack, a, w, s = sympy.symbols("x D kappa r a w S", positive=True)
    scale = d + slack  # R > D
    yield positive_form(
        "within x D and its rounding is within (x + kappa) R", (x + kappa) * scale - (x * d + rounding * kappa * scale)
    )
    yield Check("the tail of the binomial distribution", lambda: tail_failures(start=start), "up to 5 columns")
    rest = sympy.diff(tail * 2 / (sympy.pi * a) - (1 - 2 / sympy.pi * sympy.atan(a)), a)
    yield positive_form("$P(|X| > a) \\le 2 / (\\pi a)$, with equality at infinity", -rest * sympy.pi)
    mean = sympy.integrate(2 * X**2 / (sympy.pi * (1 + X**2)), (X, 0, a))
    yield equal("the mean of squares up to $a$", mean, 2 / sympy.pi * (square * a - sympy.atan(a)))
    root = sympy.sqrt(s / w)
    yield equal("both summands are the same", 2 * (1 / root + root * w / s), both * 2 * sympy.sqrt(w / s))


def partial_sum_failures(*, share: Fraction = Fraction(1, 2)) -> Failures:
    """Fails unless every sum of some of the terms is within share times (their absolute sum + |the sum of all|)."""
    numbers = (Fraction(3), Fraction(-2), Fraction(5, 2), Fraction(-1, 3))
    for signs in product((-1, 0, 1), repeat=len(numbers)):
        terms = [sign * number for sign, number in zip(signs, numbers, strict=True)]
        most = share * (sum(map(abs, terms), Fraction()) + abs(sum(terms, Fraction())))
        for chosen in product((0, 1), repeat=len(terms)):
            part = sum((term for term, is_in in zip(terms, chosen, strict=True) if is_in), Fraction())
            if abs(part) > most:
                yield f"{part} of {terms} is beyond {most}"


@claim(
    status=Status.INSTANCES,
    scope="A sum of $m$ products, each rounded by at most $u$ of itself or fused, added in any order, trees included.",
    justifies=("convert/certificate/network/interval.py: Arithmetic",),
    tests=("convert/certificate/network/test_rules.py",),
    is_lemma=True,
)
def partial_sums(*, share: Fraction = Fraction(1, 2), additions: Expr = 1) -> Checks:
    r"""The rounding of a sum is relative to its partial sums, which are at most half of $\sum |t| + |\sum t|$.

    A partial sum of terms $t_i$ is between the sum $-N$ of the negative ones and the sum $P$ of the positive ones, and
    $\max(N, P) = \frac{1}{2} (N + P + |P - N|)$. Each of $m - 1$ additions errs by $u$ times a computed partial sum, so
    that all err by $E \le (m - 1) u (S + E)$, with $S$ the largest partial sum of the rounded products:
    $E \le \gamma_{m-1} S$. A term that is 0 in every program rounds nothing.
    """
    yield Check("every partial sum", lambda: partial_sum_failures(share=share), "81 sums of four terms, all parts")
    n, u, size = sympy.symbols("n u S", positive=True)
    error = n * u / (1 - n * u) * size
    yield equal("the error that solves it", error, additions * n * u * (size + error))
