"""How far attention that was trained is from a convolution, for ``convert/certificate/distance.py``.

Away from borders, heads that look by position are a convolution, with the kernel sum_h W_h p_h. Any other kernel
differs from it point by point; keys that an image does not have are bounded by their share.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Status, claim
from .tail import range_failures

OPPOSITE, RANDOM = 20, 300
PROBABILITY, SHARE = sympy.symbols("p P", positive=True)
ADDED = (1 / SHARE - 1) * PROBABILITY  # to p, at a key
MASS = 1 - SHARE  # its sum over the keys

Shares = dict[int, Fraction]  # by offset


class Head(NamedTuple):
    """W_h, and p_h as if all integers were keys."""

    weight: Fraction
    position: Shares


class Case(NamedTuple):
    """One channel along one axis: heads, R, the offsets that are keys and those known to be, and the input's range."""

    heads: list[Head]
    kernel: Shares
    keys: range
    sure: range
    ends: tuple[Fraction, Fraction]


def cases(*, seed: int = 0) -> Iterator[Case]:
    """Two heads that cancel beyond the keys, then random layers, windows and key grids."""
    draw = random.Random(seed)
    for _ in range(OPPOSITE):
        yield _opposite([Fraction(draw.randint(1, 9), 40) for _ in range(2)])
    for _ in range(RANDOM):
        reach = draw.randint(2, 5)
        sure = range(-draw.randint(0, 2), draw.randint(1, 3))
        keys = range(sure.start - draw.randint(0, 3), sure.stop + draw.randint(0, 3))
        window, low = range(-draw.randint(0, 4), draw.randint(1, 5)), Fraction(draw.randint(-3, 3))
        heads = []
        for _ in range(draw.randint(1, 3)):
            anywhere = _shares(draw, range(-reach, reach + 1))
            position = {z: (share + (z == 0)) / 2 for z, share in anywhere.items()}  # some of it falls on keys
            heads.append(Head(Fraction(draw.randint(-4, 4)), position))
        kernel = {z: Fraction(draw.randint(-4, 4)) for z in window}
        yield Case(heads, kernel, keys, sure, (low, low + draw.randint(0, 4)))


def _total(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def _shares(draw: random.Random, places: Sequence[int]) -> Shares:
    parts = {z: Fraction(draw.randint(0, 9)) for z in places}
    parts[draw.choice(places)] += 1
    return {z: part / _total(parts.values()) for z, part in parts.items()}


def _opposite(inner: list[Fraction]) -> Case:
    """Two heads of opposite weights whose shares of what is no key cancel: all that is left is what borders change."""
    outer, keys = (1 - _total(inner)) / 2, range(2)
    heads = [
        Head(Fraction(weight), dict(zip(range(-1, 3), (outer, *part, outer), strict=True)))
        for weight, part in ((3, inner), (-3, inner[::-1]))
    ]
    return Case(heads, {}, keys, keys, (Fraction(-1), Fraction(1)))


def worst(case: Case) -> Fraction:
    """The largest |Attention - Conv_R| of all inputs within the range; R reads any values of it beyond the keys."""
    change = defaultdict(Fraction, {z: -value for z, value in case.kernel.items()})
    for weight, position in case.heads:
        at = {k: position.get(k, Fraction(0)) for k in case.keys}
        for k, share in at.items():
            change[k] += weight * share / _total(at.values())
    products = [[d * end for end in case.ends] for d in change.values()]
    return max(abs(_total(map(min, products))), abs(_total(map(max, products))))


def allowed(case: Case, *, border: int = 1, padding: int = 1, shift: int = 1) -> Fraction:
    """The bound, with each of its parts times a number that is 1."""
    low, high = case.ends
    change = defaultdict(Fraction, {z: -value for z, value in case.kernel.items()})
    rest = padding * _total(abs(value) for z, value in case.kernel.items() if z not in case.sure)
    for weight, position in case.heads:
        for z, share in position.items():
            change[z] += weight * share
        inside = _total(share for z, share in position.items() if z in case.sure)
        rest += border * (1 - inside) * abs(weight)
    moved = _total(head.weight for head in case.heads) - _total(case.kernel.values())
    return shift * abs(high + low) / 2 * abs(moved) + (high - low) / 2 * (_total(map(abs, change.values())) + rest)


def bound_failures(*, border: int = 1, padding: int = 1, shift: int = 1) -> list[str]:
    """Whether no input of any case exceeds the bound, in exact arithmetic."""
    failures = []
    for number, case in enumerate(cases()):
        found, bound = worst(case), allowed(case, border=border, padding=padding, shift=shift)
        if found > bound:
            failures.append(f"case {number}: {found} exceeds {bound}")
    return failures[:5]


def border_failures(*, mass: Expr = MASS) -> list[str]:
    """Whether p / P is p and what is added, and the sum of that over the keys is the mass."""
    failures = unequal(PROBABILITY / SHARE, PROBABILITY + ADDED, "the probability of a key")
    return failures + unequal(ADDED.subs({PROBABILITY: SHARE}), mass, "the sum of what is added")


@claim(
    status=Status.INSTANCES,
    scope=r"Exact arithmetic. $X$ is finite, $m_c$ is the middle of channel $c$'s range and $\mathrm{osc}_c$ its "
    r"length. $p_h$ is a probability on $\mathbb{Z}^n$; over the keys alone head $h$ gives each of them "
    r"$p_h / P$, with $P$ the sum over the keys. $B$ is a set of offsets that are keys of the query. Where the "
    r"kernel $R$ reads offsets that are no keys, it gets values within the range.",
    justifies=("convert/certificate/distance.py: kernel_difference, distance_from_convolution",),
    tests=(
        "convert/certificate/test_distance.py: test_no_input_is_beyond_the_distance",
        "learn/test_freezing.py: test_no_input_is_beyond_the_certificate",
    ),
)
def frozen_kernel() -> Checks:
    r"""How far trained attention is from a convolution.

    With $D = \sum_h W_h p_h - R$ and $P_h$ the sum of $p_h$ over $B$,

    ```math
    \begin{aligned} |\operatorname{Attention} - \operatorname{Conv}_R|_o \le
    &\sum_c |m_c| \Bigl|\sum_h W_{o,c,h} - \sum_z R_{o,c}(z)\Bigr| \\
    {} + &\sum_c \frac{\operatorname{osc}_c}{2} \Bigl(\sum_{z \in \mathbb{Z}^n} |D_{o,c}(z)|
    + \sum_{z \notin B} |R_{o,c}(z)| + \sum_h (1 - P_h) |W_{o,c,h}| \Bigr) . \end{aligned}
    ```

    **Proof.** The difference is linear in what is read: it is $\sum_c \sum_k d_{c,k} x_{c,k}$, and
    $\sum_k d_{c,k} = \sum_h W_{o,c,h} - \sum_z R_{o,c}(z)$, since each head's probabilities sum to 1. As
    in `smoothed-kernel`, $|\sum_k d_k x_k| \le |m| |\sum_k d_k| + \frac{1}{2} \mathrm{osc} \sum_k |d_k|$. At a key,
    with $p = p_h(k)$,

    ```math
    {=PROBABILITY / SHARE} = {=PROBABILITY} + \left[{=ADDED}\right] .
    ```

    The bracket is not negative and sums to ${=MASS}$ over the keys, at most the same with $P_h$ as the keys contain
    $B$. So by the triangle inequality $\sum_k |d_k|$ is at most $\sum_z |D(z)|$, what the brackets add, and $|R(z)|$
    at offsets of $R$ that are no keys. $\square$
    """
    yield Check("weights on a range, split at its middle", range_failures)
    yield Check("the sum of what missing keys add", border_failures)
    yield Check(
        "the worst input is within the bound",
        bound_failures,
        f"{OPPOSITE + RANDOM} layers of one channel along one axis: 1 to 3 heads, any windows and key grids",
    )
