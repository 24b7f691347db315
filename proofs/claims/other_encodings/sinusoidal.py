"""Sinusoidal encodings, one frequency w per axis: what the draft's section 3.3 left open."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Status, claim
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


@claim(
    status=Status.INSTANCES,
    scope=r"One frequency $w > 0$ for both axes. The keys are the whole $n \times n$ grid, $n \ge 2$, and every target "
    r"is one of them.",
    source="new; the draft's empty section 3.3",
    justifies=("learn/heads/sinusoidal.py: SinusoidalRelative",),
    tests=("proofs/claims/test_sinusoidal.py: test_a_frequency_may_serve_the_middle_of_a_grid_and_not_its_corner",),
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
