"""The locality strength that sinusoidal encodings need, against the quadratic encoding's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill

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


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_alpha()]


def _alpha() -> Claim:
    return Claim(
        name="sinusoidal-alpha",
        title="The locality strength that sinusoids need",
        statement=fill(
            r"\begin{gathered} 0 < w \le \tfrac{\pi}{n - 1} \implies $low \le 1 - \cos w d \le $high \text{ for }"
            r" |d| \le n - 1: \\ \text{the tail of the quadratic encoding at } \alpha \text{ takes between } $least"
            r" \alpha \text{ and } $most \alpha \end{gathered}",
            "For 0 < w <= pi / (n - 1) and |d| <= n - 1: $low <= 1 - cos(w d) <= $high. So the tail that the quadratic "
            "encoding has at alpha takes an alpha between $least and $most times as large; for equal gaps the factor "
            "is 1 / (1 - cos w), about $least. No w has a gap above 1 - cos(2 pi / n).",
            low=LOW,
            high=HIGH,
            least=D**2 / HIGH,
            most=D**2 / LOW,
        ),
        assumptions=("The same $n x n$ grid, $n >= 2$, and the same target for both encodings.",),
        steps=_alpha_steps(),
        checks=(
            Check(
                "$2 x / pi <= sin x <= x$ by concavity, and $w^2 / (1 - cos w) -> 2$", Kind.SYMBOLIC, curvature_failures
            ),
            Check(
                "$w = 2 pi / n$ has the largest gap",
                Kind.INSTANCES,
                best_gap_failures,
                cases=tuple(f"$n = {n}$, against $w = k pi / 60$ for $k = 1, ..., 120$" for n in SIDES),
            ),
        ),
        source="new; the draft's empty section 3.3",
        tests=("proofs.claims.test_sinusoidal.test_the_alpha_of_sinusoids_lies_between_its_two_bounds",),
    )


def _alpha_steps() -> tuple[Step, ...]:
    return (
        Step(
            fill(
                r"$chord \le \sin x \le x,\quad 0 \le x \le \tfrac{\pi}{2}",
                "$chord <= sin x <= x for 0 <= x <= pi / 2",
                chord=SLOPE * X,
            ),
            "$sin x - 2 x / pi$ is concave there and 0 at both ends; $x - sin x$ is 0 at 0 and grows.",
        ),
        Step(
            fill(
                r"$low \le 1 - \cos w d = $loss \le $high",
                "$low <= 1 - cos(w d) = $loss <= $high",
                low=LOW,
                loss=LOSS,
                high=HIGH,
            ),
            "With $x = w |d| / 2$, at most $pi / 2$ since $w (n - 1) <= pi$.",
        ),
        Step(
            Formula(
                r"\sum_k q^{\frac{w^2}{2} |k - t|^2} \le \sum_k q^{\mathrm{loss}_k} \le"
                r" \sum_k q^{\frac{2 w^2}{\pi^2} |k - t|^2},\quad q = e^{-\beta}",
                "sum_k q^(w^2 |k-t|^2 / 2) <= sum_k q^(loss_k) <= sum_k q^(2 w^2 |k-t|^2 / pi^2), q = exp(-beta)",
            ),
            "So sinusoids at $beta$ have at least the tail of the quadratic encoding at $beta w^2 / 2$, and at most "
            "that at $2 beta w^2 / pi^2$. Set either equal to $alpha$ and solve for $beta$.",
        ),
        Step(
            Formula(
                r"\min_{1 \le d \le n - 1} \operatorname{dist}(w d, 2\pi\mathbb{Z}) \le \frac{2\pi}{n}",
                "min_{1 <= d <= n - 1} dist(w d, 2 pi Z) <= 2 pi / n",
            ),
            "Two of the $n$ points $0, w, ..., (n - 1) w$ on a circle of length $2 pi$ are at most $2 pi / n$ apart "
            "(Dirichlet). With $w = 2 pi / n$ all are that far apart, so $1 - cos(2 pi / n)$, about $2 pi^2 / n^2$, "
            "is the best gap.",
        ),
    )
