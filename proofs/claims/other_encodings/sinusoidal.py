"""Sinusoidal encodings, one frequency w per axis: what the draft's section 3.3 left open.

    score = cos(w (delta_1 - Delta_1)) + cos(w (delta_2 - Delta_2))

is v . r_delta for r_delta = (cos w delta_1, sin w delta_1, cos w delta_2, sin w delta_2) and v the same of Delta.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ..common.small_convolutions import pixels
from .sinusoidal_alpha import W, X, nearest_turn

SIDES = (2, 3, 4, 5)
FREQUENCIES = tuple(
    sympy.Rational(*f) for f in ((1, 5), (2, 5), (5, 7), (1, 2), (2, 3), (1, 1), (4, 3), (8, 5), (2, 1), (7, 3))
)


def encoding_failures(*, sign: int = 1) -> list[str]:
    """Whether v . r_delta is the score, for all frequencies, offsets and centres."""
    d1, d2, D1, D2 = sympy.symbols("delta1 delta2 Delta1 Delta2", real=True)
    encoding, vector = (
        (sympy.cos(W * a), sympy.sin(W * a), sympy.cos(W * b), sign_of * sympy.sin(W * b))
        for a, b, sign_of in ((d1, d2, 1), (D1, D2, sign))
    )
    product_ = sum(r * v for r, v in zip(encoding, vector, strict=True))
    return unequal(sympy.expand_trig(product_), _expanded(W * (d1 - D1)) + _expanded(W * (d2 - D2)), "v . r_delta")


def _expanded(angle: Expr) -> Expr:
    return sympy.expand_trig(sympy.cos(sympy.expand(angle)))


def zero_failures(*, period: Expr = 2 * sympy.pi) -> list[str]:
    """Whether 1 - cos x >= 0, and is 0 exactly at the multiples of the period."""
    n, d = sympy.symbols("n d", integer=True, positive=True)
    failures = unequal(1 - sympy.cos(X), 2 * sympy.sin(X / 2) ** 2, "1 - cos x")
    zeros = sympy.solveset(sympy.cos(X) - 1, X, sympy.S.Reals)
    if zeros.base_set != sympy.S.Integers or zeros.lamda(n) != period * n:
        failures.append(f"cos x = 1 at {zeros}, not at the multiples of {period}")
    return failures + unequal(sympy.cos(W * d).subs(W, period * n / d), 1, "cos(w d) for w d = n periods")


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
) -> list[str]:
    """Compares criterion and gap with the losses of all keys of an n x n grid, for all targets."""
    failures = []
    for side, frequency in product(SIDES, FREQUENCIES):
        axis = {abs(d): loss(frequency, abs(d)) for d in range(1 - side, side)}
        targets = pixels((side, side))
        smallest = min((_smallest_loss(axis, target, side) for target in targets), key=lambda value: value.evalf(30))
        unique = smallest != 0
        if unique != criterion(frequency, side):
            failures.append(f"w = {frequency} pi, n = {side}: unique is {unique}, the criterion says otherwise")
        elif unique:
            failures += unequal(smallest, gap(frequency, side), f"gap for w = {frequency} pi, n = {side}")
    return failures


def _smallest_loss(axis: dict[int, Expr], target: tuple[int, int], side: int) -> Expr:
    """The least that any other key of the grid loses against the target."""
    others = (key for key in pixels((side, side)) if key != target)
    losses = {axis[abs(row - target[0])] + axis[abs(column - target[1])] for row, column in others}
    return min(losses, key=lambda value: value.evalf(30))


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_criterion()]


def _criterion() -> Claim:
    return Claim(
        name="sinusoidal-maximum",
        title="When a sinusoidal score has its only maximum at the target",
        statement=Formula(
            r"\cos w(\delta_1 - \Delta_1) + \cos w(\delta_2 - \Delta_2) \text{ is largest at the target only,}"
            r" \\ \text{for every target of an } n \times n \text{ grid} \iff w d \notin 2 \pi \mathbb{Z}"
            r" \text{ for } d = 1, \dots, n - 1;"
            r" \\ \text{the gap is } \min_{1 \le d \le n - 1} (1 - \cos w d)",
            "On an n x n grid the score cos(w (delta_1 - Delta_1)) + cos(w (delta_2 - Delta_2)) is largest at the "
            "target only, for every target, iff no integer 1 <= d <= n - 1 makes w d a multiple of 2 pi; so whenever "
            "0 < w (n - 1) < 2 pi. The smallest gap is 1 - cos(w d) for the d whose w d is nearest to a multiple of "
            "2 pi.",
        ),
        assumptions=(
            "The keys are the whole $n x n$ grid, $n >= 2$, and the target is one of them.",
            "For one fixed target $t$ the condition is needed only for $d <= max(t_a, n - 1 - t_a)$ on each axis $a$.",
            "A grid of $n_1 x n_2$ pixels needs it on each axis, with that axis's frequency and side.",
        ),
        steps=_criterion_steps(),
        checks=(
            Check("the score is a scalar product of two encodings", Kind.SYMBOLIC, encoding_failures),
            Check(
                "$1 - cos x = 2 sin^2(x/2)$ vanishes exactly at the multiples of $2 pi$", Kind.SYMBOLIC, zero_failures
            ),
            Check(
                "criterion and gap, against all keys and all targets",
                Kind.INSTANCES,
                criterion_failures,
                cases=tuple(f"{n}x{n}, $w / pi$ in {', '.join(map(str, FREQUENCIES))}" for n in SIDES),
            ),
        ),
        source="new; the draft's empty section 3.3",
        tests=("proofs.claims.test_sinusoidal.test_a_frequency_may_serve_the_middle_of_a_grid_and_not_its_corner",),
    )


def _criterion_steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"2 - \cos w d_1 - \cos w d_2 = (1 - \cos w d_1) + (1 - \cos w d_2) \ge 0,\quad d = \delta - \Delta",
                "2 - cos(w d_1) - cos(w d_2) = (1 - cos(w d_1)) + (1 - cos(w d_2)) >= 0, d = delta - Delta",
            ),
            "What a key loses against the target. For target $t$ of the grid, $d_a$ runs through "
            "$-t_a, ..., n - 1 - t_a$: offsets of both signs, at most $n - 1$ in size.",
        ),
        Step(
            Formula(
                r"\text{loss} = 0 \iff w d_1 \in 2\pi\mathbb{Z} \text{ and } w d_2 \in 2\pi\mathbb{Z}",
                "the loss is 0 iff both w d_1 and w d_2 are multiples of 2 pi",
            ),
            "Each term is at least 0, and 0 exactly at multiples of $2 pi$.",
        ),
        Step(
            Formula(
                r"w d \notin 2\pi\mathbb{Z} \text{ for } 1 \le d \le n - 1 \implies d_1 = d_2 = 0",
                "if no 1 <= d <= n - 1 makes w d a multiple of 2 pi, a loss of 0 means d_1 = d_2 = 0",
            ),
            "Sufficient: $cos$ is even, so $d$ and $-d$ lose the same; every $d_a$ other than 0 has "
            "$1 <= |d_a| <= n - 1$.",
        ),
        Step(
            Formula(
                r"w d \in 2\pi\mathbb{Z} \text{ for some } 1 \le d \le n - 1 \implies (d, 0) \text{ ties with } (0, 0)"
                r" \text{ for the target } t = (0, 0)",
                "if w d is a multiple of 2 pi for some 1 <= d <= n - 1, the key (d, 0) ties with the target (0, 0)",
            ),
            "Necessary: the target in the corner has a key at every distance $1, ..., n - 1$.",
        ),
        Step(
            Formula(
                r"\text{gap} = \min_{1 \le d \le n - 1} (1 - \cos w d) = 1 - \cos w d^*",
                "gap = min_{1 <= d <= n - 1} (1 - cos(w d)) = 1 - cos(w d^*), w d^* nearest to a multiple of 2 pi",
            ),
            "The smallest loss has one $d_a = 0$; $1 - cos$ grows with the distance to the nearest multiple of "
            "$2 pi$. For $0 < w <= 2 pi / n$ that is $d^* = 1$, and the gap is $1 - cos w = 2 sin^2(w / 2)$.",
        ),
    )
