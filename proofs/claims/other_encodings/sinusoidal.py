"""Sinusoidal encodings, one frequency w per axis, which the draft's section 3.3 left open.

When their score has its only maximum at the target, and the sharpness that they need against the quadratic
encoding's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.small import points

SIDES = (2, 3, 4, 5)
FREQUENCIES = tuple(
    sympy.Rational(*f) for f in ((1, 5), (2, 5), (5, 7), (1, 2), (2, 3), (1, 1), (4, 3), (8, 5), (2, 1), (7, 3))
)


def encoding_failures(*, sign: int = 1) -> Failures:
    """Fails unless v . r_delta is the score, for all frequencies, offsets and centres."""
    d1, d2, D1, D2 = sympy.symbols("delta1 delta2 Delta1 Delta2", real=True)
    encoding, vector = (
        (sympy.cos(W * a), sympy.sin(W * a), sympy.cos(W * b), sign_of * sympy.sin(W * b))
        for a, b, sign_of in ((d1, d2, 1), (D1, D2, sign))
    )
    product_ = sum(r * v for r, v in zip(encoding, vector, strict=True))
    return unequal(sympy.expand_trig(product_), _expanded(W * (d1 - D1)) + _expanded(W * (d2 - D2)), "v . r_delta")


def _expanded(angle: Expr) -> Expr:
    return sympy.expand_trig(sympy.cos(sympy.expand(angle)))


def zero_failures(*, period: Expr = 2 * sympy.pi) -> Failures:
    """Fails unless 1 - cos x >= 0, and is 0 exactly at the multiples of the period."""
    n, d = sympy.symbols("n d", integer=True, positive=True)
    yield from unequal(1 - sympy.cos(X), 2 * sympy.sin(X / 2) ** 2, "1 - cos x")
    zeros = sympy.solveset(sympy.cos(X) - 1, X, sympy.S.Reals)
    if zeros.base_set != sympy.S.Integers or zeros.lamda(n) != period * n:
        yield f"cos x = 1 at {zeros}, not at the multiples of {period}"
    yield from unequal(sympy.cos(W * d).subs(W, period * n / d), 1, "cos(w d) for w d = n periods")


def loss(frequency: Expr, distance: int) -> Expr:
    """1 - cos(w d), w = frequency * pi: what a key loses along one axis at distance d from the target."""
    return 1 - sympy.cos(sympy.pi * frequency * distance)


def separates(frequency: Expr, side: int) -> bool:
    """The criterion: no integer 1 <= d <= n - 1 makes w d a multiple of 2 pi, for w = frequency * pi."""
    return not any((frequency * d / 2).is_integer for d in range(1, side))


def nearest_gap(frequency: Expr, side: int) -> Expr:
    """1 - cos(w d) for the d in 1, ..., n - 1 whose w d is nearest to a multiple of 2 pi."""
    return 1 - sympy.cos(2 * sympy.pi * nearest_turn(frequency, side))


def criterion_failures(
    *, criterion: Callable[[Expr, int], bool] = separates, gap: Callable[[Expr, int], Expr] = nearest_gap
) -> Failures:
    """Fails unless criterion and gap agree with the losses of all keys of an n x n grid, for all targets."""
    for side, frequency in product(SIDES, FREQUENCIES):
        axis = {abs(d): loss(frequency, abs(d)) for d in range(1 - side, side)}
        targets = points((side, side))
        smallest = min((_smallest_loss(axis, target, side) for target in targets), key=lambda value: value.evalf(30))
        unique = smallest != 0
        if unique != criterion(frequency, side):
            yield f"w = {frequency} pi, n = {side}: unique is {unique}, the criterion says otherwise"
        elif unique:
            yield from unequal(smallest, gap(frequency, side), f"gap for w = {frequency} pi, n = {side}")


def _smallest_loss(axis: dict[int, Expr], target: tuple[int, int], side: int) -> Expr:
    """The least that any other key of the grid loses against the target."""
    others = (key for key in points((side, side)) if key != target)
    losses = {axis[abs(row - target[0])] + axis[abs(column - target[1])] for row, column in others}
    return min(losses, key=lambda value: value.evalf(30))


@claim(
    status=Status.INSTANCES,
    scope=r"One frequency $w > 0$ for both axes. The keys are the whole $n \times n$ grid, $n \ge 2$, and every target "
    r"is one of them.",
    source="new; the draft's empty section 3.3",
    justifies=("learn/heads/encodings.py: SinusoidalRelative",),
    tests=("proofs/claims/test_sinusoidal.py",),
)
def sinusoidal_maximum() -> Checks:
    r"""When a sinusoidal score has its only maximum at the target.

    The score $\cos w(\delta_1 - \Delta_1) + \cos w(\delta_2 - \Delta_2)$ is largest at the target alone, for every
    target, if and only if

    ```math
    w d \notin 2 \pi \mathbb{Z} \quad \text{for } d = 1, \dots, n - 1 ,
    ```

    so whenever $0 < w (n - 1) < 2 \pi$. Then the smallest gap to another key, over all targets, is
    $\min_{1 \le d \le n - 1} (1 - \cos w d)$, that of the $d$ whose $w d$ is nearest to a multiple of $2 \pi$.

    **Proof.** The score is the inner product of $(\cos w \delta_1, \sin w \delta_1, \cos w \delta_2, \sin w \delta_2)$
    with the same of $\Delta$. Against the target, a key at distances $d_1$ and $d_2$ along the axes loses
    $(1 - \cos w d_1) + (1 - \cos w d_2)$. Since $1 - \cos x = 2 \sin^2 (x/2)$, neither term is negative, and each is 0
    at the multiples of $2 \pi$ only. The condition is sufficient, because $\cos$ is even and the $d_a$ other than 0
    have $1 \le |d_a| \le n - 1$. It is necessary, because the target in the corner has a key at every distance
    $1, \dots, n - 1$ along an axis; if $w d \in 2 \pi \mathbb{Z}$, that key ties with it. The smallest loss has one
    $d_a = 0$, and $1 - \cos$ grows with the distance to the nearest multiple of $2 \pi$. $\square$

    For one target $t$ the condition is needed up to $d = \max(t_a, n - 1 - t_a)$ on each axis $a$. A grid of
    $n_1 \times n_2$ pixels needs it on each axis, with that axis's frequency and side.
    """
    yield Check("the score is an inner product of two encodings", encoding_failures)
    yield Check(r"$1 - \cos x = 2 \sin^2 (x/2)$ vanishes exactly at the multiples of $2 \pi$", zero_failures)
    yield Check(
        "criterion and gap, against all keys and all targets",
        criterion_failures,
        f"$n = {', '.join(map(str, SIDES))}$ with $w / \\pi = {', '.join(map(str, FREQUENCIES))}$",
    )


ALPHA_SIDES = (2, 3, 4, 5, 8)

W, X = sympy.Symbol("w", positive=True), sympy.Symbol("x", real=True)
SLOPE = 2 / sympy.pi  # of the chord below sin x on [0, pi/2]
D = sympy.Symbol("d", positive=True)
LOSS = 2 * sympy.sin(W * D / 2) ** 2  # 1 - cos(w d)
LOW, HIGH = 2 * (SLOPE * W * D / 2) ** 2, 2 * (W * D / 2) ** 2


def nearest_turn(frequency: Expr, side: int) -> Expr:
    """How near w d comes to a multiple of 2 pi for d = 1, ..., n - 1, in turns; w = frequency * pi."""
    half = Fraction(int(frequency.p), 2 * int(frequency.q))
    return sympy.Rational(min(abs(half * d - round(half * d)) for d in range(1, side)))


def curvature_failures(*, slope: Expr = SLOPE, order: Expr = 2) -> Failures:
    """Fails unless slope x <= sin x on [0, pi/2], sin x <= x for x >= 0, and w^2 / (1 - cos w) -> order as w -> 0."""
    concave, convex = sympy.sin(X) - slope * X, X - sympy.sin(X)
    yield from unequal(sympy.diff(concave, X, 2), -sympy.sin(X), "its second derivative, at most 0 on [0, pi]")
    for end in (0, sympy.pi / 2):
        yield from unequal(concave.subs(X, end), 0, f"sin x - {slope} x at {end}")
    yield from unequal(convex.subs(X, 0), 0, "x - sin x at 0")
    yield from unequal(sympy.diff(convex, X), 2 * sympy.sin(X / 2) ** 2, "its derivative, at least 0")
    yield from unequal(1 - sympy.cos(W * D), LOSS, "1 - cos(w d)")
    yield from unequal(sympy.limit(W**2 / (1 - sympy.cos(W)), W, 0), order, "limit of w^2 / (1 - cos w)")


def best_gap_failures(sides: Iterable[int] = ALPHA_SIDES, *, turn: Callable[[int], Expr] | None = None) -> Failures:
    """Fails unless w = 2 pi / n stays 1 / n turn away from all multiples of 2 pi, and no other frequency farther.

    The gap, 1 - cos of that angle, grows with it up to half a turn.
    """
    for side in sides:
        claimed = sympy.Rational(1, side) if turn is None else turn(side)
        yield from unequal(nearest_turn(sympy.Rational(2, side), side), claimed, f"w = 2 pi / {side}, in turns")
        others = (sympy.Rational(k, 60) for k in range(1, 121))
        farther = (f for f in others if nearest_turn(f, side) > claimed)
        yield from (f"w = {f} pi has a larger gap on {side}x{side}" for f in farther)


@claim(
    status=Status.INSTANCES,
    scope=r"The same $n \times n$ grid, $n \ge 2$, and the same target for both encodings; $0 < w \le \pi / (n - 1)$.",
    source="new; the draft's empty section 3.3",
    tests=("proofs/claims/test_sinusoidal.py",),
    is_lemma=True,
)
def sinusoidal_alpha() -> Checks:
    r"""The sharpness that sinusoids need.

    For $|d| \le n - 1$, ${=LOW} \le 1 - \cos w d \le {=HIGH}$. So sinusoids miss the target by as large a share of
    their attention as the quadratic encoding does at $\alpha$ if their strength is some number between
    ${=D**2 / HIGH} \alpha$ and ${=D**2 / LOW} \alpha$; they have the same gap at $\alpha / (1 - \cos w)$. No $w$ at
    all gives a gap above $1 - \cos (2 \pi / n)$ to sinusoids of strength 1.

    **Proof.** ${=SLOPE * X} \le \sin x \le x$ for $0 \le x \le \pi / 2$: the first difference is concave and 0 at both
    ends, the second is 0 at 0 and grows. Put $x = w |d| / 2$ into $1 - \cos w d = {=LOSS}$. Then sinusoids of strength
    $\beta$ miss the target by no less than the quadratic encoding at ${=HIGH / D**2} \beta$, and by no more than that
    at ${=LOW / D**2} \beta$; set either equal to $\alpha$. For the gap, two of the $n$ points $0, w, \dots, (n - 1) w$
    on a circle of length $2 \pi$ are at most $2 \pi / n$ apart (Dirichlet), and with $w = 2 \pi / n$ all are that far
    apart. $\square$
    """
    yield Check(r"$2 x / \pi \le \sin x \le x$ by concavity, and $w^2 / (1 - \cos w) \to 2$", curvature_failures)
    yield Check(
        r"$w = 2 \pi / n$ has the largest gap",
        best_gap_failures,
        f"$n = {', '.join(map(str, ALPHA_SIDES))}$, against $w = k \\pi / 60$ for $k = 1, ..., 120$",
    )
