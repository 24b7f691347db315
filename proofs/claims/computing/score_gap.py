"""Justifies ``smallest_gap`` in ``heads/encoding.py``: how far rounding may bring the scores of two keys together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import sympy as sp

from ...prover.checks import equal, has_negative_coefficient, positive_form
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.sums import round_to
from .floating_point import FORMATS

D, R = sp.symbols("D R", nonnegative=True)
SHARE = D**2 + 4 * R * D + 6 * R**2  # of alpha c, that rounding may take
FARTHEST = 2**25  # the largest |Delta| up to which a power of two loses nothing
UNIT = Fraction(1, 2 ** FORMATS["binary64"].precision)
PRECISION = 10  # of the instances, in bits
ALPHAS = (Fraction(17, 16), Fraction(27, 16))
FAR = (-23, -4, 0, 9, 20)


@claim(
    status=Status.INSTANCES,
    scope=r"Along $n \le 3$ axes. Keys, queries and centres have integer coordinates, and the key $t = q + \Delta_h$ "
    r"is on the grid. $u = 2^{-53}$; no number over- or underflows; a product and a sum may be rounded together. "
    r"The second inequality holds where its right side is at least 0.",
    justifies=("convert/heads/encoding.py: smallest_gap", "convert/heads/regime.py: Regime"),
    tests=("convert/heads/test_encoding.py", "proofs/claims/test_floating_point.py"),
    is_lemma=True,
)
def score_gap(*, share: Any = SHARE, spare: int = 4, farthest: int = FARTHEST) -> Checks:
    r"""How far rounding may bring the scores of two keys together.

    The score of the target exceeds that of a key at distance $D = |k - t| \ge 1$ by $\alpha D^2$
    (`encoding-identity`). Computed, with $R = |\Delta_h|$ and $c = (2 n + {=spare}) u$,

    ```math
    \mathrm{fl}(s_t - s_k) \ge \alpha \left( D^2 - c {=share} \right)
    \ge \alpha \left( 1 - c {=share.subs(D, 1)} \right) ,
    ```

    and for $\alpha$ a power of two and $R \le {=reach}$ it is at least $\alpha$. Where the bound is less than what
    one-hot attention needs, the literal engine refuses.

    **Proof.** By Cauchy and Schwarz, the terms of $s_k = -\alpha |\delta|^2 + \sum_i 2 \alpha \Delta_i \delta_i$
    together are at most $\alpha (|\delta|^2 + 2 R |\delta|)$. The first goes through
    $1 + (n - 1) + 1 + n + 1 = 2 n + 2$ roundings: a square, the sum of squares, the product with $\alpha$, the sum of
    the score and the softmax's subtraction. The others go through no more, so each term changes by at most a share of
    $\gamma_{2 n + 2} \le c$ (`rounded-sum`). With $|\delta| \le D + R$ for the key and $|\delta| = R$ for the target,
    the two scores lose $\alpha c {=share}$. If $\alpha$ is a power of two, all that is computed is $\alpha$ times an
    integer, and exact while the terms are at most $2^{53}$ (`exact-scores`), which they are up to $D = {=reach}$;
    farther away the first bound is above $\alpha$. $\square$
    """
    reach = f"2^{{{farthest.bit_length() - 1}}}"
    yield equal(
        r"what rounding may take is $|\delta|^2 + 2 R |\delta|$ at $|\delta| = D + R$ and at $|\delta| = R$",
        share,
        _terms(D + R) + _terms(R),
    )
    yield Check("so many roundings in a row cost at most $c$", lambda: _too_many(spare))
    t, s = sp.symbols("t s", positive=True)
    bound = D**2 - share / (share.subs(D, 1) + s)  # it is at least 0 at D = 1 if 1 / c is at least the share there
    yield positive_form(
        r"the bound grows with $D \ge 1$ while it is at least 0", bound.subs(D, 1 + t) - bound.subs(D, 1)
    )
    yield Check(
        rf"for a power of two nothing is rounded up to $D = {reach}$, and farther away the gap is above $\alpha$",
        lambda: _losses_of_powers(share, spare, farthest),
    )
    yield Check(
        "the first bound holds in exact arithmetic",
        lambda: _narrower(share, spare),
        f"1 and 2 axes, $u = 2^{{-{PRECISION}}}$, {len(ALPHAS)} values of $\\alpha$, rounded one by one or fused",
    )


def _terms(distance: Any) -> Any:
    """Sum of the terms of a score over alpha for a key at this distance from the query."""
    return distance**2 + 2 * R * distance


def _too_many(spare: int) -> Failures:
    counts = {axes: 2 * axes + 2 for axes in (1, 2, 3)}
    return [
        f"{count} roundings can cost more than {2 * axes + spare} u along {axes} axes"
        for axes, count in counts.items()
        if count * UNIT / (1 - count * UNIT) > (2 * axes + spare) * UNIT
    ]


def _losses_of_powers(share: Any, spare: int, farthest: int) -> Failures:
    largest = _terms(D + R).subs({D: farthest, R: farthest})
    if largest > 1 / UNIT:
        yield f"the terms come to {largest}, above 2^53"
    t = sp.Symbol("t", positive=True)
    beyond = sp.expand(share.subs(R, D)).coeff(D, 2)  # R <= D, so the share is at most ``beyond`` D^2
    yield from has_negative_coefficient((beyond * D**2 - share).subs(D, R + t), f"{beyond} D^2 minus the share")
    for axes in (1, 2, 3):
        gap = farthest**2 * (1 - beyond * (2 * axes + spare) * UNIT)
        if gap < 1:
            yield f"beyond D = {farthest} the gap may be {gap} alpha along {axes} axes"


def _narrower(share: Any, spare: int) -> Failures:
    taken = sp.lambdify((D, R), share)
    for axes, alpha, fused in product((1, 2), ALPHAS, (False, True)):
        c = Fraction(2 * axes + spare, 2**PRECISION)
        for center, key in _places(axes):
            squared = sum((k - t) ** 2 for k, t in zip(key, center, strict=True))
            bound = alpha * (squared - c * taken(_length(squared), _length(sum(t**2 for t in center))))
            target, other = (_score(alpha, center, place, fused=fused) for place in (center, key))
            gap = round_to(target - other, PRECISION)
            if gap < bound:
                yield f"centre {center}, key at {key}, alpha {alpha}: a gap of {gap}"


def _places(axes: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Centres, and keys of a query at 0 that are not the centre's: all of ``FAR``, and the centre's neighbours."""
    for center in product(FAR, repeat=axes):
        steps = product(range(axes), (-1, 1))  # to a neighbour: the axis, and where
        beside = [tuple(t + step * (axis == along) for along, t in enumerate(center)) for axis, step in steps]
        for key in (*product(FAR, repeat=axes), *beside):
            if key != center:
                yield center, key


def _score(alpha: Fraction, center: tuple[int, ...], key: tuple[int, ...], *, fused: bool) -> Fraction:
    """Each operation rounded as ``positional_scores`` does it, or a product and a sum together."""
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
