"""How far attention that was trained is from a convolution, for ``convert/certificate/distance.py``.

Away from borders, heads that look by position are a convolution, with the kernel sum_h W_h p_h. Any other kernel
differs from it point by point; keys that an image does not have are bounded by their share.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.lattice import Head, differences, spread
from ..common.scores import Point
from . import tail

OPPOSITE, RANDOM = 20, 300

Shares = dict[Point, Fraction]


class Channel(NamedTuple):
    """One channel along one axis: heads, R, the offsets that are keys and those known to be, and the input's range."""

    heads: list[Head]
    kernel: Shares
    keys: list[Point]
    sure: list[Point]
    ends: tuple[Fraction, Fraction]


def _points(places: Iterable[int]) -> list[Point]:
    return [(place,) for place in places]


def channels(*, seed: int = 0) -> Iterator[Channel]:
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
            anywhere = _shares(draw, _points(range(-reach, reach + 1)))
            shares = {z: (share + (z == (0,))) / 2 for z, share in anywhere.items()}  # some of it falls on keys
            heads.append(Head(Fraction(draw.randint(-4, 4)), shares))
        kernel = {z: Fraction(draw.randint(-4, 4)) for z in _points(window)}
        yield Channel(heads, kernel, _points(keys), _points(sure), (low, low + draw.randint(0, 4)))


def _shares(draw: random.Random, places: Sequence[Point]) -> Shares:
    parts = {z: Fraction(draw.randint(0, 9)) for z in places}
    parts[draw.choice(places)] += 1
    total = sum(parts.values())
    return {z: part / total for z, part in parts.items()}


def _opposite(inner: list[Fraction]) -> Channel:
    """Two heads of opposite weights whose shares of what is no key cancel: all that is left is what borders change."""
    outer, keys = (1 - sum(inner)) / 2, _points(range(2))
    heads = [
        Head(Fraction(weight), dict(zip(_points(range(-1, 3)), (outer, *part, outer), strict=True)))
        for weight, part in ((3, inner), (-3, inner[::-1]))
    ]
    return Channel(heads, {}, keys, keys, (Fraction(-1), Fraction(1)))


def worst(channel: Channel) -> Fraction:
    """The largest |Attention - Conv_R| of all inputs within the range; R reads any values of it beyond the keys."""
    changes = differences(channel.heads, channel.kernel, channel.keys).values()
    products = [[change * end for end in channel.ends] for change in changes]
    return max(abs(Fraction(sum(map(end, products)))) for end in (min, max))


def allowed(channel: Channel, *, border: int = 1, padding: int = 1, shift: int = 1) -> Fraction:
    """The bound, with each of its parts times a number that is 1."""
    low, high = channel.ends
    unread = sum(abs(value) for z, value in channel.kernel.items() if z not in channel.sure)
    moved = sum(head.weight for head in channel.heads) - sum(channel.kernel.values())
    changed = spread(channel.heads, channel.kernel, channel.sure, border=border) + padding * unread
    return Fraction(shift * abs(high + low) / 2 * abs(moved) + (high - low) / 2 * changed)


def bound_failures(*, border: int = 1, padding: int = 1, shift: int = 1) -> Failures:
    """Fails unless no input of any case exceeds the bound, in exact arithmetic."""
    for number, channel in enumerate(channels()):
        found, bound = worst(channel), allowed(channel, border=border, padding=padding, shift=shift)
        if found > bound:
            yield f"case {number}: {found} exceeds {bound}"


@claim(
    status=Status.INSTANCES,
    scope=r"Exact arithmetic. $X$ is finite, $m_c$ is the middle of channel $c$'s range and $\mathrm{osc}_c$ its "
    r"length. $p_h$ is a probability on $\mathbb{Z}^n$; over the keys alone head $h$ gives each of them "
    r"$p_h / P$, with $P$ the sum over the keys. $B$ is a set of offsets that are keys of the query. Where the "
    r"kernel $R$ reads offsets that are no keys, it gets values within the range.",
    justifies=("convert/certificate/distance.py: kernel_difference, distance_from_convolution",),
    tests=("convert/certificate/test_distance.py", "learn/test_freezing.py"),
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
    {=tail.PROBABILITY / tail.SHARE} = {=tail.PROBABILITY} + \left[{=tail.CHANGE}\right] .
    ```

    The bracket is not negative and sums to ${=tail.CHANGES}$ over the keys, at most the same with $P_h$ as the keys
    contain $B$. So by the triangle inequality $\sum_k |d_k|$ is at most $\sum_z |D(z)|$, what the brackets add, and
    $|R(z)|$ at offsets of $R$ that are no keys. $\square$
    """
    yield Check("weights on a range, split at its middle", tail.range_failures)
    yield Check("the sum of what missing keys add", tail.border_failures)
    yield Check(
        "the worst input is within the bound",
        bound_failures,
        f"{OPPOSITE + RANDOM} layers of one channel along one axis: 1 to 3 heads, any windows and key grids",
    )
