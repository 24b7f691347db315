"""The locality strength that sinusoidal encodings need, against the quadratic encoding's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Status, claim

SIDES = (2, 3, 4, 5, 8)

W, X = sympy.Symbol("w", positive=True), sympy.Symbol("x", real=True)
SLOPE = 2 / sympy.pi  # of the chord below sin x on [0, pi/2]
D = sympy.Symbol("d", positive=True)
LOSS = 2 * sympy.sin(W * D / 2) ** 2  # 1 - cos(w d)
LOW, HIGH = 2 * (SLOPE * W * D / 2) ** 2, 2 * (W * D / 2) ** 2


def nearest_turn(frequency: Expr, side: int) -> Expr:
    """How near w d comes to a multiple of 2 pi for d = 1, ..., n - 1, in turns; w = frequency * pi."""
    half = Fraction(int(frequency.p), 2 * int(frequency.q))
    return sympy.Rational(min(abs(half * d - round(half * d)) for d in range(1, side)))


def curvature_failures(*, slope: Expr = SLOPE, order: Expr = 2) -> list[str]:
    """Whether slope x <= sin x on [0, pi/2] and sin x <= x for x >= 0, and w^2 / (1 - cos w) -> order as w -> 0."""
    concave, convex = sympy.sin(X) - slope * X, X - sympy.sin(X)
    failures = unequal(sympy.diff(concave, X, 2), -sympy.sin(X), "its second derivative, at most 0 on [0, pi]")
    for end in (0, sympy.pi / 2):
        failures += unequal(concave.subs(X, end), 0, f"sin x - {slope} x at {end}")
    failures += unequal(convex.subs(X, 0), 0, "x - sin x at 0")
    failures += unequal(sympy.diff(convex, X), 2 * sympy.sin(X / 2) ** 2, "its derivative, at least 0")
    failures += unequal(1 - sympy.cos(W * D), LOSS, "1 - cos(w d)")
    return failures + unequal(sympy.limit(W**2 / (1 - sympy.cos(W)), W, 0), order, "limit of w^2 / (1 - cos w)")


def best_gap_failures(sides: Iterable[int] = SIDES, *, turn: Callable[[int], Expr] | None = None) -> list[str]:
    """Whether w = 2 pi / n stays 1 / n turn away from all multiples of 2 pi, and no other frequency farther.

    The gap, 1 - cos of that angle, grows with it up to half a turn.
    """
    failures = []
    for side in sides:
        claimed = sympy.Rational(1, side) if turn is None else turn(side)
        failures += unequal(nearest_turn(sympy.Rational(2, side), side), claimed, f"w = 2 pi / {side}, in turns")
        others = (sympy.Rational(k, 60) for k in range(1, 121))
        farther = [f for f in others if nearest_turn(f, side) > claimed]
        failures += [f"w = {f} pi has a larger gap on {side}x{side}" for f in farther[:1]]
    return failures


@claim(
    status=Status.INSTANCES,
    scope=r"The same $n \times n$ grid, $n \ge 2$, and the same target for both encodings; $0 < w \le \pi / (n - 1)$.",
    source="new; the draft's empty section 3.3",
    tests=("proofs/claims/test_sinusoidal.py: test_the_alpha_of_sinusoids_lies_between_its_two_bounds",),
    is_lemma=True,
)
def sinusoidal_alpha() -> Checks:
    r"""The locality strength that sinusoids need.

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
        f"$n = {', '.join(map(str, SIDES))}$, against $w = k \\pi / 60$ for $k = 1, ..., 120$",
    )
