"""Justifies ``convert/certificate/network/apart.py``: what operations make of a difference in the 2-norm."""

from __future__ import annotations

import cmath
import math
import random
from collections.abc import Callable
from itertools import product

import sympy

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Status, claim

HALF, QUARTER = sympy.Rational(1, 2), sympy.Rational(1, 4)
P = sympy.Symbol("p", real=True)
SLOPES = 2 * P * (1 - P)  # the sum of the absolute values of a row of softmax's Jacobian
T, C, N, EPS = sympy.symbols(r"t c n \epsilon", positive=True)  # a point t c of a ray, where c is its 2-norm
ALONG = EPS / (C**2 / N + EPS) ** sympy.Rational(3, 2)  # the slope of normalising on that ray
POLYNOMIALS = 200


def grid_failures(*, closest: Callable[[float, int], float] = lambda d, m: math.cos(math.pi * d / m)) -> list[str]:
    """Whether no trigonometric polynomial is larger than its largest value on a grid, divided by ``closest``.

    Half of them are cosines between two points of the grid, and some have half an odd number for a degree.
    """
    draw, failures = random.Random(0), []
    for number in range(POLYNOMIALS):
        taps, fine = draw.randint(2, 6), draw.choice((4, 8))
        degree, count, middle = (taps - 1) / 2, fine * (taps - 1), draw.uniform(0, 2 * math.pi)
        weights = [draw.gauss(0, 1) + 1j * draw.gauss(0, 1) for _ in range(taps)]
        if number % 2:
            weights = [cmath.exp(1j * middle), *[0] * (taps - 2), cmath.exp(-1j * middle)]

        def size(turn: float, weights: list[complex] = weights) -> float:
            return abs(sum(w * cmath.exp(2j * math.pi * m * turn) for m, w in enumerate(weights)))

        whole = max(size(place / (64 * count)) for place in range(64 * count))
        listed = max(size(place / count) for place in range(count))
        if whole > listed / closest(degree, count) * (1 + 1e-9):
            failures.append(f"degree {degree}, {count} points: {whole} above {listed} / {closest(degree, count)}")
    return failures


def alias_failures(*, kept: Callable[[int, int], bool] = lambda n, s: n % s == 0) -> list[str]:
    """Whether the mean of e^(i n (w + 2 pi j / s)) over j is e^(i n w) if s divides n, and 0 if not."""
    failures = []
    for s, n in product(range(1, 6), range(-6, 7)):
        mean = sum(cmath.exp(2j * cmath.pi * n * j / s) for j in range(s)) / s
        if abs(mean - kept(n, s)) > 1e-12:
            failures.append(f"n = {n}, s = {s}: {mean}")
    return failures


def schur_failures(*, rows: int = 1) -> list[str]:
    """Whether (sum a x)^2 <= (sum a)^rows sum a x^2 for a >= 0: the difference is a sum of squares."""
    a, x = sympy.symbols("a1:4", nonnegative=True), sympy.symbols("x1:4", real=True)
    squares = sum(a[i] * a[j] * (x[i] - x[j]) ** 2 for i in range(3) for j in range(i))
    linear, weighted = (sum(w * value**power for w, value in zip(a, x, strict=True)) for power in (1, 2))
    return unequal(sum(a) ** rows * weighted - linear**2, squares, "the bound minus the square")


def window_failures(*, shared: Callable[[int, int], int] = math.gcd) -> list[str]:
    """Whether no pixel is in more windows than ceil(k gcd(s, d) / s): window j of stride s has the pixels s j + d m."""
    failures = []
    for size, step, dilation in product(range(1, 7), range(1, 6), range(1, 5)):
        most = max(sum((p - dilation * m) % step == 0 for m in range(size)) for p in range(step))
        if most > -(-size * shared(step, dilation) // step):
            failures.append(f"{size} pixels, stride {step}, dilation {dilation}: {most} windows")
    return failures


def softmax_failures(*, largest: Expr = HALF) -> list[str]:
    """Whether 2 p (1 - p) is at most 1/2: the difference is 2 (p - 1/2)^2."""
    return unequal(largest - SLOPES, 2 * (P - HALF) ** 2, "the bound minus the sum")


def ray_failures(*, slope: Expr = ALONG) -> list[str]:
    """Whether the slope of t c / s along a ray is eps / s^3, at most 1 / s as s^2 = c^2 / n + eps is at least eps."""
    deviation = sympy.sqrt(T**2 * C**2 / N + EPS)
    derivative = sympy.diff(T * C / deviation, T).subs(T, 1) / C
    failures = unequal(derivative, slope, "the slope")
    return failures + not_nonnegative((C**2 / N + EPS) - EPS, "s^2 minus eps")


def gate_failures(*, steepest: Expr = QUARTER) -> list[str]:
    """Whether (x + a y / 4)^2 <= (1 + (a / 4)^2) (x^2 + y^2): the difference is a square."""
    x, y, a = sympy.symbols("x y a", real=True)
    bound = (1 + (steepest * a) ** 2) * (x**2 + y**2) - (x + a * y / 4) ** 2
    return unequal(bound, (a * x / 4 - y) ** 2, "the bound minus the square")


def own_failures(*, parts: int = 1) -> list[str]:
    """Whether own(r + q) <= own(r) + own(q) for own(r) = u r + v with v >= 0, in the part at r ``parts`` times."""
    u, v, r, q = sympy.symbols("u v r q", nonnegative=True)
    return not_nonnegative(parts * (u * r + v) + (u * q + v) - (u * (r + q) + v), "own(r) + own(q) minus own(r + q)")


@claim(
    status=Status.INSTANCES,
    scope="Real values; kernels, strides, dilations and groups of any size, with zeros around the image.",
    justifies=(
        "convert/certificate/network/apart.py: Differences",
        "convert/certificate/network/rules/gains.py: gains",
        "convert/certificate/network/rules/spectral.py: convolution_norm",
    ),
    tests=("convert/certificate/network/test_apart.py: test_no_direction_is_enlarged_by_more_than_the_norm",),
    is_lemma=True,
)
def difference_norms() -> Checks:
    r"""Largest factors by which operations enlarge a difference in the 2-norm.

    For $f$ with $\Vert f(a) - f(c) \Vert \le L \Vert a - c \Vert$, and both sides computed,

    ```math
    \Vert \mathrm{fl} f(a) - \mathrm{fl} f(c) \Vert \le L \Vert a - c \Vert + \Vert \mathrm{own} \Vert ,
    ```

    where own bounds what both differ by from $f$ at equal inputs.

    | operation | gain $L$ |
    | --- | --- |
    | convolution of stride 1 | $\sup_\omega \Vert F(\omega) \Vert$ with $F(\omega) = \sum_m W_m e^{i m \omega}$ |
    | the same of stride $s$ | $\sup_\omega \Vert G \Vert^{1/2}$, $G = s^{-n} \sum_j F F^*(\omega + 2 \pi j / s)$ |
    | linear, without negative weights | $(\text{largest row sum} \cdot \text{largest column sum})^{1/2}$ |
    | maxima over $k$ pixels, stride $s$, dilation $d$ | $\lceil k \gcd(s, d) / s \rceil^{1/2}$ along each axis |
    | $a b$ with $\vert a \vert \le A$ | $A$ for $b$, over what $b$ is repeated along the root of the sum of $A^2$ |
    | softmax | $\frac{1}{2}$, as $\sum_j \vert J_{ij} \vert = {=SLOPES}$ |
    | $a \sigma(b)$ | $(1 + A^2 / 16)^{1/2}$ |
    | normalising $n$ values | $1 / s$ for the smallest deviation $s$, $s^2 = \vert c \vert^2 / n + \epsilon$ |
    | a function of each value | its largest slope |

    **Proof.** With zeros around it, an image is one on $\mathbb{Z}^n$, where Fourier's transform is an isometry that
    takes a convolution to products with $F$; cutting out a part enlarges nothing. $p = u^* F v$ is a trigonometric
    polynomial of degree $d = (K - 1) / 2$ in each $\omega_a$, times $e^{i d \omega_a}$. M. Riesz (1914): where a real
    one, as $\mathrm{Re}(z p)$ with $|z| = 1$ is, has its maximum $m$, it is at least $m \cos d t$ at any distance
    $|t| \le \pi / (2 d)$. $M$ equidistant points leave $|t| \le \pi / M$. So, axis by axis, $\sup |p|$ is at most the
    largest $|p|$ on a grid divided by $\prod_a \cos(\pi d_a / M)$, for all unit vectors $u$, $v$. Every $s$-th output
    makes one frequency of the $s^n$ at $\omega + 2 \pi j / s$, whose mean keeps of $e^{i n \omega}$ those where $s$
    divides $n$. So $u^* G u$ has degree $\lfloor (K - 1) / s \rfloor$ in $s \omega$.

    A row that is not negative has $(\sum_j a_j x_j)^2 \le \sum_j a_j \sum_j a_j x_j^2$; summed over rows, that is at
    most the largest row sum times the largest column sum times $\sum_j x_j^2$. A maximum moves by at most its window's
    2-norm. A symmetric matrix is no larger than its largest absolute row sum. Of normalising, directions orthogonal to
    $c$ have the slope $1 / s$, and $c$ has ${=ALONG}$; $|c|$ is at least the middle's less the radius of the ball that
    values are in, and taking off a mean enlarges nothing. What a layer of attention differs by is affine in
    $r = |W||x| + |b|$, so $\mathrm{own}(r + q) \le \mathrm{own}(r) + \mathrm{own}(q)$; $q$ is $|W||a - x|$, whose norm
    is at most that of $\sum_m |W_m|$ times $\Vert a - x \Vert$. $\square$
    """
    yield Check(
        "a polynomial between points of a grid", grid_failures, f"{POLYNOMIALS} polynomials of degree up to 5/2"
    )
    yield Check("frequencies that a stride keeps", alias_failures, "strides up to 5, 13 frequencies")
    yield Check("sums without negative weights", schur_failures, "three terms")
    yield Check("windows that a pixel is in", window_failures, "120 geometries")
    yield Check("rows of softmax's Jacobian", softmax_failures)
    yield Check("normalising along a ray", ray_failures)
    yield Check("a gate's two slopes", gate_failures)
    yield Check("a layer's own difference elsewhere", own_failures)
