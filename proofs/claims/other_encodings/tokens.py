"""Heads of a plain vision transformer that look at the taps of a kernel: absolute positions behind a layer norm.

Positions are cosines and sines of row and column, in channels of the token; a head turns its query by its tap's shift.
Layer norm divides every token by a deviation of its own, so the largest score must be 0: then no key wins by a small
deviation. One channel that is 1 makes it 0, and one that is 0 takes off the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.small import points

BETA, ROOT, STRENGTH, OTHERS = sympy.symbols("beta D s n", positive=True)
DEVIATION_Q, DEVIATION_K = sympy.symbols("sigma_q sigma_k", positive=True)
MEAN_Q, MEAN_K = sympy.symbols("mu_q mu_k", real=True)
QUERY, SHIFT, OFFSET = (sympy.symbols(f"{name}1:3", real=True) for name in ("q", "Delta", "delta"))
COUNTS = (1, 2, 3)  # frequencies
GRIDS = ((2, 2), (3, 2), (3, 4))


def frequencies(count: int) -> tuple[Expr, ...]:
    """w_1, ..., w_F: any real numbers."""
    return tuple(sympy.symbols(f"w1:{count + 1}", real=True))


def channels(place: tuple[Expr, ...], waves: Iterable[Expr]) -> list[Expr]:
    """A token's channels of position: cosine and sine of each coordinate at each frequency, 1 and 0."""
    turns = [wave * coordinate for coordinate in place for wave in waves]
    return [*(function(turn) for turn in turns for function in (sympy.cos, sympy.sin)), sympy.S.One, sympy.S.Zero]


def read(token: list[Expr], mean: Expr, deviation: Expr, *, zero: int) -> list[Expr]:
    """The numbers that a head reads of a token behind its layer norm: each channel minus the last one, which is 0."""
    normed = [(value - mean) / deviation for value in token]
    return [BETA * (value - zero * normed[-1]) for value in normed[:-1]]


def turned(
    values: list[Expr], waves: tuple[Expr, ...], shift: tuple[Expr, ...], *, turn: int, ones: Expr
) -> list[Expr]:
    """A query's numbers: pairs of cosine and sine turned by the shift's angle, the channel of ones times a factor."""
    found: list[Expr] = []
    for place, (delta, wave) in enumerate(product(shift, waves)):
        cosine, sine = values[2 * place : 2 * place + 2]
        angle = turn * wave * delta
        found += [
            sympy.cos(angle) * cosine - sympy.sin(angle) * sine,
            sympy.sin(angle) * cosine + sympy.cos(angle) * sine,
        ]
    return [*found, ones * values[-1]]


def loss(waves: Iterable[Expr], distance: Expr) -> Expr:
    """g(d) = sum_f (1 - cos w_f d): what a key loses along one axis at distance d from the tap."""
    return sympy.Add(*(1 - sympy.cos(wave * distance) for wave in waves))


def score_failures(*, ones: int = -2, zero: int = 1, turn: int = 1) -> Failures:
    """Fails unless the head's score is minus a positive factor times what the key loses along both axes.

    Args:
        ones: Factor of the query's channel of ones, times the number of frequencies.
        zero: Factor of the channel that is 0, which is subtracted from the others.
        turn: Sign of the angle by which queries are turned.
    """
    for count in COUNTS:
        waves = frequencies(count)
        keys = tuple(q + delta for q, delta in zip(QUERY, OFFSET, strict=True))
        query = turned(
            read(channels(QUERY, waves), MEAN_Q, DEVIATION_Q, zero=zero),
            waves,
            SHIFT,
            turn=turn,
            ones=sympy.Integer(ones * count),
        )
        key = read(channels(keys, waves), MEAN_K, DEVIATION_K, zero=zero)
        found = sympy.Add(*(a * b for a, b in zip(query, key, strict=True))) / sympy.sqrt(ROOT)
        losses = sympy.Add(*(loss(waves, d - t) for d, t in zip(OFFSET, SHIFT, strict=True)))
        factor = BETA**2 / (sympy.sqrt(ROOT) * DEVIATION_Q * DEVIATION_K)
        rest = sympy.expand(sympy.expand_trig(sympy.expand(found + factor * losses)))
        yield from _vanishing(rest, waves, f"F = {count}: score plus its formula")


def _vanishing(expression: Expr, waves: tuple[Expr, ...], what: str) -> Failures:
    """Fails unless an expression of cosines and sines is 0, with sin^2 = 1 - cos^2 of the query's angles."""
    for wave, q in product(waves, QUERY):
        expression = sympy.expand(expression.subs(sympy.sin(wave * q) ** 2, 1 - sympy.cos(wave * q) ** 2))
    if expression != 0:
        yield f"{what} is {str(expression)[:200]}, not 0"


def share_failures(*, placeless: int = 2, axes: int = 2) -> Failures:
    """Fails unless the share at the tap is the bound where all deviations are the largest.

    Args:
        placeless: Loss of a token without a place, over the number of frequencies.
        axes: Sums over an axis that are multiplied.
    """
    count = sympy.Symbol("F", positive=True)
    for rows, columns in GRIDS:
        tap = (0, 0)
        g = {d: sympy.Symbol(f"g{d}", positive=True) if d else sympy.S.Zero for d in range(max(rows, columns))}
        keys = [sympy.exp(-STRENGTH * (g[row] + g[column])) for row, column in points((rows, columns))]
        total = sympy.Add(*keys) + OTHERS * sympy.exp(-2 * count * STRENGTH)
        sums = [sympy.Add(*(sympy.exp(-STRENGTH * g[d]) for d in range(side))) for side in (rows, columns)]
        bound = sympy.Mul(*sums[:axes]) + OTHERS * sympy.exp(-placeless * count * STRENGTH)
        yield from unequal(total, bound, f"{rows}x{columns}, tap {tap}: the sum of exponentials and the bound's")


def separates(side: int, period: int) -> bool:
    """The criterion: no offset on the grid is a multiple of the period, however many frequencies there are."""
    return side - 1 < period


def separation_failures(*, criterion: Callable[[int, int], bool] = separates) -> Failures:
    """Fails unless g vanishes on a grid at the tap alone exactly where the period exceeds all offsets."""
    for side, period, count in product(range(2, 8), range(2, 10), COUNTS):
        waves = [2 * sympy.pi * f / period for f in range(1, count + 1)]
        unique = all(loss(waves, sympy.Integer(d)) != 0 for d in range(1, side))
        if unique != criterion(side, period):
            yield f"side {side}, period {period}, {count} frequencies: one maximum is {unique}"


def size_failures(*, positions: int = 2, head: int = 1) -> Failures:
    """Fails unless positions take 4 F + positions channels, of which a head reads 4 F + head numbers.

    Args:
        positions: Channels beside the cosines and sines.
        head: Numbers beside them.
    """
    for count in COUNTS:
        token = channels(QUERY, frequencies(count))
        yield from unequal(sympy.Integer(len(token)), 4 * count + positions, f"F = {count}: channels of position")
        numbers = len(read(token, MEAN_Q, DEVIATION_Q, zero=1))
        yield from unequal(sympy.Integer(numbers), 4 * count + head, f"F = {count}: numbers that a head reads")


@claim(
    status=Status.COQ,
    scope=r"A token at $p$ holds $\cos w_f p_a$ and $\sin w_f p_a$ for both axes $a$ and $F$ frequencies, 1 and 0; its "
    r"layer norm takes off its mean and divides by its deviation $\sigma > 0$, with weight 1 and bias 0 at these "
    r"channels. $n$ further tokens without a place hold 1, 0 and no waves. The tap is one of the keys.",
    source="new: Theorem 1 with absolute positions, in the vision transformer as it is",
    coq=(
        "Tokens.v: token_score_is_loss, token_score_at_the_tap, token_score_is_at_most_0, token_score_falls, "
        "total_is_bounded, share_at_the_tap",
    ),
    tests=("proofs/claims/test_tokens.py",),
)
def token_heads(
    *, ones: int = -2, zero: int = 1, turn: int = 1, placeless: int = 2, axes: int = 2, positions: int = 2
) -> Checks:
    r"""Heads of a plain vision transformer may look at the taps of a kernel, whatever its layer norm divides by.

    Let a head read each of the $4 F + 1$ channels minus the channel that is 0, times $\beta$; let the query turn each
    pair of cosine and sine by the angle $w_f \Delta_a$ and take $-2 F$ times the channel of ones. With heads of
    dimension $D$, the key at $q + \delta$ has the score

    ```math
    -\frac{\beta^2}{\sqrt{D}\, \sigma_q \sigma_k}
        \bigl( g(\delta_1 - \Delta_1) + g(\delta_2 - \Delta_2) \bigr), \qquad g(d) = \sum_{f=1}^{F} (1 - \cos w_f d) ,
    ```

    0 at the tap, and nowhere positive. With $s = \beta^2 / (\sqrt{D} \sigma_q \max_k \sigma_k)$ the tap keeps at
    least

    ```math
    \Bigl( \sum_i e^{-s\, g(i - q_1 - \Delta_1)} \sum_j e^{-s\, g(j - q_2 - \Delta_2)} + n\, e^{-2 F s} \Bigr)^{-1}
    ```

    of the head's attention. Positions take $4 F + 2$ channels of the token.

    **Proof.** The channel that is 0 becomes $-\mu / \sigma$: subtracting it leaves $\beta x_c / \sigma$ of each channel
    $x_c$. A turned pair times a key's pair is $\cos w_f (\delta_a - \Delta_a)$ by the addition theorem; the sum over
    both axes and all frequencies minus $2 F$ is minus the losses. Since no loss is negative, a factor of at least $s$
    makes each score at most $-s$ times its losses, and the sum of exponentials over the grid is then a product of two.
    A token without a place has $-2 F$ times a factor of at least $s$. The score at the tap is 0, its exponential 1.
    $\square$

    Without the channel of ones a key's score is largest where $\sigma_k$ is smallest; without the channel that is 0 the
    token's mean enters it.
    """
    yield Check(
        "the score is minus a factor times the losses, for all means and deviations",
        lambda: score_failures(ones=ones, zero=zero, turn=turn),
        f"$F = {', '.join(map(str, COUNTS))}$, all $w_f$, $q$, $\\delta$ and $\\Delta$",
    )
    yield Check(
        "with the largest deviation at every key, the sum of exponentials is the bound's",
        lambda: share_failures(placeless=placeless, axes=axes),
        f"{len(GRIDS)} grids, any losses",
    )
    yield Check(
        "channels of position, and numbers that a head reads",
        lambda: size_failures(positions=positions),
        f"$F = {', '.join(map(str, COUNTS))}$",
    )


@claim(
    status=Status.INSTANCES,
    scope=r"As `token-heads`, on a grid of $N \times N$ tokens, $N \ge 2$, with $w_f = 2 \pi f / P$ for "
    r"$f = 1, \dots, F$ and a positive integer $P$; every target is one of the tokens.",
    source="new; as `sinusoidal-maximum`",
    tests=("proofs/claims/test_tokens.py",),
    is_lemma=True,
)
def token_period(*, criterion: Callable[[int, int], bool] = separates) -> Checks:
    r"""A head over tokens has one tap if and only if the longest wave is longer than the grid.

    $g(d) > 0$ for all offsets $d \ne 0$ between two tokens of an axis if and only if $P > N - 1$.

    **Proof.** $g(d) = 0$ means that $w_f d$ is a multiple of $2 \pi$ for every $f$, that is, that $P$ divides $f d$.
    For $f = 1$ this says that $P$ divides $d$, and then it holds for every $f$. Offsets run from $1 - N$ to $N - 1$.
    $\square$
    """
    yield Check(
        "$g$ vanishes at the tap alone if and only if the period exceeds all offsets",
        lambda: separation_failures(criterion=criterion),
        "grids of side 2 to 7, periods 2 to 9, 1 to 3 frequencies",
    )
