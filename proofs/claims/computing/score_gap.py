"""Justifies ``smallest_gap`` in ``heads/encoding.py``: how far rounding may bring the scores of two keys together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import sympy as sp

from ...prover.decide import has_negative_coefficient
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import lines, show
from ..certificate.rounding import round_to
from ..common.checks import identity

D, R = sp.symbols("D R", nonnegative=True)
SHARE = D**2 + 4 * R * D + 6 * R**2  # of alpha c, that rounding may take
FARTHEST = 2**25  # the largest |Delta| up to which a power of two loses nothing
UNIT = Fraction(1, 2**53)  # of binary64
PRECISION = 10  # of the instances, in bits
ALPHAS = (Fraction(17, 16), Fraction(27, 16))
FAR = (-23, -4, 0, 9, 20)
_STEPS = {axes: tuple(product(range(axes), (-1, 1))) for axes in (1, 2)}  # to a neighbour: the axis, and where


def claims() -> list[Claim]:
    """The claim of this file."""
    return [score_gap()]


def score_gap(*, share: Any = SHARE, spare: int = 4, farthest: int = FARTHEST) -> Claim:
    """The score of the key at an integer centre stays above all others, by a gap that has a closed form.

    Args:
        share: What rounding may take of alpha c.
        spare: c is 2 n + spare unit roundoffs.
        farthest: The largest |Delta| up to which a power of two is claimed to lose nothing.
    """
    shown = show(share)
    return Claim(
        name="score-gap",
        title="How far rounding may bring the scores of two keys together",
        statement=lines(
            Formula(
                rf"\mathrm{{fl}}(s_t - s_k) \ge \alpha \bigl(D^2 - c\,({shown.latex})\bigr) \ge \alpha"
                rf" \bigl(1 - c\,({show(share.subs(D, 1)).latex})\bigr)",
                f"fl(s_t - s_k) >= alpha (D^2 - c ({shown.text})) >= alpha (1 - c ({show(share.subs(D, 1)).text}))",
            ),
            Formula(
                rf"c = (2 n + {spare})\,u,\quad D = |k - t| \ge 1,\quad R = |\Delta_h|",
                f"c = (2 n + {spare}) u, D = |k - t| >= 1, R = |Delta_h|",
            ),
            Formula(
                rf"\alpha = 2^a,\ R \le 2^{{{farthest.bit_length() - 1}}} \implies"
                r" \mathrm{fl}(s_t - s_k) \ge \alpha",
                f"alpha = 2^a, R <= 2^{farthest.bit_length() - 1} implies fl(s_t - s_k) >= alpha",
            ),
        ),
        assumptions=(
            "Along $n <= 3$ axes; keys, queries and centres have integer coordinates, and the key $t = q + Delta_h$ is "
            "on the grid.",
            "For the second inequality, its right side is at least 0. Where it is less than what one-hot attention "
            "needs, the literal engine refuses.",
            "$u = 2^-53$; no number over- or underflows. A product and a sum may be rounded together (fused).",
        ),
        steps=_steps(spare),
        checks=(
            identity(
                "what rounding may take is $|delta|^2 + 2 R |delta|$ at $|delta| = D + R$ and at $|delta| = R$",
                share,
                _terms(D + R) + _terms(R),
            ),
            Check("so many roundings in a row cost at most $c$", Kind.EXACT, lambda: _too_many(spare)),
            Check("the bound grows with $D >= 1$ while it is at least 0", Kind.SYMBOLIC, lambda: _shrinks(share)),
            Check(
                f"for a power of two nothing is rounded up to $D = 2^{farthest.bit_length() - 1}$, and farther away "
                "the gap is above $alpha$",
                Kind.EXACT,
                lambda: _losses_of_powers(share, spare, farthest),
            ),
            Check(
                "the first bound holds in exact arithmetic",
                Kind.INSTANCES,
                lambda: _narrower(share, spare),
                cases=_cases(),
            ),
        ),
        justifies=("conv2attn.convert.heads.encoding.smallest_gap", "conv2attn.convert.heads.regime.Regime"),
        tests=(
            "convert.heads.test_encoding.test_the_smallest_gap_is_below_every_gap_in_double_precision",
            "proofs.claims.test_floating_point.test_the_proved_gap_is_the_codes",
        ),
    )


def _terms(distance: Any) -> Any:
    """What the terms of a score over alpha come to, together, for a key at this distance from the query."""
    return distance**2 + 2 * R * distance


def _steps(spare: int) -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"s_k = -\alpha |\delta|^2 + \sum_i 2 \alpha \Delta_i \delta_i",
                "s_k = -alpha |delta|^2 + sum_i 2 alpha Delta_i delta_i",
            ),
            "The score of a key; its terms together are at most $alpha (|delta|^2 + 2 R |delta|)$, by Cauchy and "
            "Schwarz.",
        ),
        Step(
            Formula(r"1 + (n - 1) + 1 + n + 1 = 2 n + 2", "1 + (n - 1) + 1 + n + 1 = 2 n + 2"),
            "The roundings that the first term goes through: a square, the sum of squares, the product with $alpha$, "
            "the sum of the score, and the softmax's subtraction. The other terms go through no more.",
        ),
        Step(
            Formula(
                rf"\gamma_{{2 n + 2}} = \frac{{(2 n + 2) u}}{{1 - (2 n + 2) u}} \le (2 n + {spare})\,u = c",
                f"gamma_(2 n + 2) = (2 n + 2) u / (1 - (2 n + 2) u) <= (2 n + {spare}) u = c",
            ),
            "The standard model of rounding: a term changes by at most this share (claim `rounded-sum`).",
        ),
        Step(
            Formula(
                r"|\delta| \le D + R,\quad |t - q| = R",
                "|delta| <= D + R for the key, and = R for the target",
            ),
            "The triangle inequality. Exactly, the scores differ by $alpha D^2$ (claim `encoding-identity`). "
            "Rounding takes from it the shares of the terms of both.",
        ),
        Step(
            Formula(
                r"m \in \mathbb{Z},\ |m| \le 2^{53} \implies \mathrm{fl}(2^a m) = 2^a m",
                "m an integer, |m| <= 2^53 implies fl(2^a m) = 2^a m",
            ),
            "With $alpha$ a power of two, all that is computed is $alpha$ times an integer (claim `exact-scores`), and "
            "exact as long as the terms together are at most $2^53$.",
        ),
    )


def _too_many(spare: int) -> list[str]:
    counts = {axes: 2 * axes + 2 for axes in (1, 2, 3)}
    return [
        f"{count} roundings can cost more than {2 * axes + spare} u along {axes} axes"
        for axes, count in counts.items()
        if count * UNIT / (1 - count * UNIT) > (2 * axes + spare) * UNIT
    ]


def _shrinks(share: Any) -> list[str]:
    """At D = 1 the bound is at least 0 if 1 / c is at least the share there; D = 1 + t."""
    t, s = sp.symbols("t s", positive=True)
    bound = D**2 - share / (share.subs(D, 1) + s)
    return has_negative_coefficient(bound.subs(D, 1 + t) - bound.subs(D, 1), "the bound at 1 + t minus that at 1")


def _losses_of_powers(share: Any, spare: int, farthest: int) -> list[str]:
    found = []
    largest = _terms(D + R).subs({D: farthest, R: farthest})
    if largest > 2**53:
        found.append(f"the terms come to {largest}, above 2^53")
    t = sp.Symbol("t", positive=True)
    beyond = sp.expand(share.subs(R, D)).coeff(D, 2)  # R <= D, so the share is at most so many D^2
    found += has_negative_coefficient((beyond * D**2 - share).subs(D, R + t), f"{beyond} D^2 minus the share")
    for axes in (1, 2, 3):
        gap = farthest**2 * (1 - beyond * (2 * axes + spare) * sp.Rational(1, 2**53))
        if gap < 1:
            found.append(f"beyond D = {farthest} the gap may be {gap} alpha along {axes} axes")
    return found


def _cases() -> tuple[str, ...]:
    coordinates, alphas = ", ".join(map(str, FAR)), " and ".join(f"$alpha = {alpha}$" for alpha in ALPHAS)
    return tuple(
        f"centres and keys along {along} with coordinates {coordinates}, and keys beside the target; "
        f"{alphas}; $u = 2^-{PRECISION}$; {rounded}"
        for along, rounded in product(("1 axis", "2 axes"), ("rounded one by one", "fused"))
    )


def _narrower(share: Any, spare: int) -> list[str]:
    found = []
    taken = sp.lambdify((D, R), share)
    for axes, alpha, fused in product((1, 2), ALPHAS, (False, True)):
        c = Fraction(2 * axes + spare, 2**PRECISION)
        for center, key in _places(axes):
            squared = sum((k - t) ** 2 for k, t in zip(key, center, strict=True))
            bound = alpha * (squared - c * taken(_length(squared), _length(sum(t**2 for t in center))))
            gap = _gap(alpha, center, key, fused=fused)
            if gap < bound:
                found.append(f"centre {center}, key at {key}, alpha {alpha}: a gap of {gap}")
    return found[:5]


def _places(axes: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Centres, and keys of a query at 0 that are not the centre's: all of ``FAR``, and the centre's neighbours."""
    for center in product(FAR, repeat=axes):
        beside = [tuple(t + step * (axis == along) for along, t in enumerate(center)) for axis, step in _STEPS[axes]]
        for key in (*product(FAR, repeat=axes), *beside):
            if key != center:
                yield center, key


def _gap(alpha: Fraction, center: tuple[int, ...], key: tuple[int, ...], *, fused: bool) -> Fraction:
    """fl(s_t - s_k), each operation rounded as ``positional_scores`` and a softmax do them, or some together."""
    target, other = (_score(alpha, center, place, fused=fused) for place in (center, key))
    return round_to(target - other, PRECISION)


def _score(alpha: Fraction, center: tuple[int, ...], key: tuple[int, ...], *, fused: bool) -> Fraction:
    squares = Fraction(0)
    for along in key:
        squares = round_to(squares + round_to(Fraction(along**2), PRECISION), PRECISION)
    score = round_to(-alpha * squares, PRECISION)
    for along, t in zip(key, center, strict=True):
        term = round_to(2 * alpha * t, PRECISION) * along
        score = round_to(score + (term if fused else round_to(term, PRECISION)), PRECISION)
    return score


def _length(squared: int) -> Fraction:
    """The root, rounded down to 20 binary places: with it the bound is no smaller than the claim's."""
    return Fraction(math.isqrt(squared << 40), 2**20)
