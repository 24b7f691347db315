"""How far attention that was trained is from a convolution, for ``convert/certificate/distance.py``.

Away from borders, heads that look by position are a convolution, with the kernel sum_h W_h p_h. Any other kernel
differs from it point by point; keys that an image does not have, and content behind gates, are bounded by their share.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import sympy

from ...prover.decide import Expr, not_nonnegative, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step

COUNTS = (1, 2, 3, 5)
CASES = 300
HALF = sympy.Rational(1, 2)


class Case(NamedTuple):
    """One channel along one axis, in exact numbers.

    Attributes:
        weights: W_h of each head.
        gates: g_h.
        positions: p_h at the offsets first, first + 1, ...: what the head gives them if all integers were keys.
        first: The first of these offsets.
        kernel: R at the offsets start, start + 1, ...
        start: The first of these.
        keys: First and last offset that are keys.
        sure: Offsets that are known to be keys.
        content: What content makes of each head, over the keys.
        ends: The range of the input.
    """

    weights: list[Fraction]
    gates: list[Fraction]
    positions: list[list[Fraction]]
    first: int
    kernel: list[Fraction]
    start: int
    keys: tuple[int, int]
    sure: tuple[int, int]
    content: list[list[Fraction]]
    ends: tuple[Fraction, Fraction]


def cases(count: int = CASES, *, seed: int = 0) -> Iterator[Case]:
    """Two heads that cancel beyond the keys, then random layers, windows and key grids."""
    draw = random.Random(seed)

    def shares(length: int) -> list[Fraction]:
        parts = [Fraction(draw.randint(0, 9)) for _ in range(length)]
        parts[draw.randrange(length)] += 1
        return [part / sum(parts) for part in parts]

    yield from _opposite(draw)
    for _ in range(count):
        heads, reach = draw.randint(1, 3), draw.randint(2, 5)
        sure = (-draw.randint(0, 2), draw.randint(0, 2))
        keys = (sure[0] - draw.randint(0, 3), sure[1] + draw.randint(0, 3))
        wide = draw.randint(0, 4), draw.randint(0, 4)
        positions = []
        for _ in range(heads):
            found = shares(2 * reach + 1)
            found[reach] += 1  # so that some of it falls on keys
            positions.append([each / 2 for each in found])
        low = Fraction(draw.randint(-3, 3))
        yield Case(
            [Fraction(draw.randint(-4, 4)) for _ in range(heads)],
            [draw.choice((Fraction(0), Fraction(draw.randint(0, 4), 4))) for _ in range(heads)],
            positions,
            -reach,
            [Fraction(draw.randint(-4, 4)) for _ in range(sum(wide) + 1)],
            -wide[0],
            keys,
            sure,
            [shares(keys[1] - keys[0] + 1) for _ in range(heads)],
            (low, low + draw.randint(0, 4)),
        )


def _opposite(draw: random.Random) -> Iterator[Case]:
    """Two heads of opposite weights whose shares of what is no key cancel: all that is left is what borders change."""
    for _ in range(20):
        inner = [Fraction(draw.randint(1, 9), 40) for _ in range(2)]
        outer = (1 - inner[0] - inner[1]) / 2
        yield Case(
            [Fraction(3), Fraction(-3)],
            [Fraction(0), Fraction(0)],
            [[outer, *inner, outer], [outer, *reversed(inner), outer]],
            -1,
            [Fraction(0)],
            0,
            (0, 1),
            (0, 1),
            [[Fraction(1), Fraction(0)]] * 2,
            (Fraction(-1), Fraction(1)),
        )


def worst(case: Case) -> Fraction:
    """The largest |Attention - Conv_R| of all inputs within the range; R reads any values of it beyond the keys."""
    change: dict[int, Fraction] = {}
    first, last = case.keys
    for weight, gate, position, content in zip(case.weights, case.gates, case.positions, case.content, strict=True):
        at = {case.first + i: share for i, share in enumerate(position) if first <= case.first + i <= last}
        total = sum(at.values())
        for offset in range(first, last + 1):
            share = (1 - gate) * at.get(offset, Fraction(0)) / total + gate * content[offset - first]
            change[offset] = change.get(offset, Fraction(0)) + weight * share
    for i, value in enumerate(case.kernel):
        change[case.start + i] = change.get(case.start + i, Fraction(0)) - value
    low, high = case.ends
    highest = sum((d * (low if d < 0 else high) for d in change.values()), Fraction(0))
    lowest = sum((d * (high if d < 0 else low) for d in change.values()), Fraction(0))
    return max(abs(highest), abs(lowest))


def allowed(case: Case, *, border: int = 1, gates: int = 1, padding: int = 1, shift: int = 1) -> Fraction:
    """The bound, with each of its parts times a number that is 1."""
    low, high = case.ends
    size, middle = (high - low) / 2, abs(high + low) / 2
    kernel = {case.start + i: value for i, value in enumerate(case.kernel)}
    change, rest = {z: -value for z, value in kernel.items()}, Fraction(0)
    for weight, gate, position in zip(case.weights, case.gates, case.positions, strict=True):
        inside = Fraction(0)
        for i, share in enumerate(position):
            z = case.first + i
            change[z] = change.get(z, Fraction(0)) + (1 - gate) * weight * share
            inside += share if case.sure[0] <= z <= case.sure[1] else 0
        rest += border * (1 - inside) * (1 - gate) * abs(weight) + gates * gate * abs(weight)
    nothing = Fraction(0)
    beyond = sum((abs(value) for z, value in kernel.items() if not case.sure[0] <= z <= case.sure[1]), nothing)
    moved = abs(sum(case.weights, nothing) - sum(kernel.values(), nothing))
    apart = sum(map(abs, change.values()), nothing)
    return shift * middle * moved + size * (apart + rest + padding * beyond)


def bound_failures(*, border: int = 1, gates: int = 1, padding: int = 1, shift: int = 1) -> list[str]:
    """Whether no input of any case exceeds the bound, in exact arithmetic."""
    failures = []
    for number, case in enumerate(cases()):
        found, bound = worst(case), allowed(case, border=border, gates=gates, padding=padding, shift=shift)
        if found > bound:
            failures.append(f"case {number}: {found} exceeds {bound}")
    return failures[:5]


def range_failures(*, factor: Expr = HALF) -> list[str]:
    """Whether |sum_k d_k x_k| <= |m| |sum_k d_k| + factor osc sum |d_k| for |x_k - m| <= osc / 2."""
    failures = []
    middle, osc, size, slack = (sympy.Symbol(n, nonnegative=n != "m", real=True) for n in ("m", "osc", "d", "t"))
    for count in COUNTS:
        d, x = (sympy.symbols(f"{name}1:{count + 1}", real=True) for name in "dx")
        whole = sum(a * b for a, b in zip(d, x, strict=True))
        split = middle * sum(d) + sum(a * (b - middle) for a, b in zip(d, x, strict=True))
        failures += unequal(whole, split, f"{count} keys: splitting off the middle of the range")
    for sign in (1, -1):  # |x - m| <= osc / 2: sign (x - m) = osc / 2 - t
        term = (sign * size) * (sign * (osc / 2 - slack))
        failures += not_nonnegative(factor * osc * size - term, f"sign {sign}: bound minus term")
        failures += unequal(factor * osc * size, term.subs(slack, 0), f"sign {sign}: the extreme case")
    return failures


def gate_failures(*, mass: Expr | None = None) -> list[str]:
    """Whether (1 - g) p / P + g c = (1 - g) p + (1 - g) (1 / P - 1) p + g c, with shares that sum to those claimed."""
    p, share, gate, content = sympy.symbols("p P g c", positive=True)
    added = (1 - gate) * (1 / share - 1) * p + gate * content
    failures = unequal((1 - gate) * p / share + gate * content, (1 - gate) * p + added, "the probability of a key")
    total = added.subs({p: share, content: 1})
    return failures + unequal(
        total, (1 - gate) * (1 - share) + gate if mass is None else mass, "the sum of what is added over the keys"
    )


def claims() -> list[Claim]:
    """The distance between trained attention and a convolution."""
    return [
        Claim(
            name="frozen-kernel",
            title="How far trained attention is from a convolution",
            statement=Formula(
                r"|\operatorname{Attention} - \operatorname{Conv}_R|_o \le \sum_c |m_c| \Bigl|\sum_h "
                r"W_{o,c,h} - \sum_z "
                r"R_{o,c}(z)\Bigr| + \frac{\operatorname{osc}_c}{2} \Bigl(\sum_{z \in \mathbb{Z}^n} "
                r"|D_{o,c}(z)| + \sum_h "
                r"\bigl((1 - P_h)(1 - g_h) + g_h\bigr) |W_{o,c,h}| + \sum_{z \notin B} "
                r"|R_{o,c}(z)|\Bigr),\quad D = \sum_h "
                r"(1 - g_h) W_h p_h - R",
                "|Attention - Conv_R|_o <= sum_c |m_c| |sum_h W_{o,c,h} - sum_z R_{o,c}(z)| + osc_c "
                "/ 2 (sum_{z in Z^n} "
                "|D_{o,c}(z)| + sum_h ((1 - P_h) (1 - g_h) + g_h) |W_{o,c,h}| + sum_{z not in B} "
                "|R_{o,c}(z)|), with D = "
                "sum_h (1 - g_h) W_h p_h - R, and P_h the sum of p_h over B, offsets that are keys of the query.",
            ),
            assumptions=(
                "$X$ is finite, $m_c$ the middle of channel $c$'s range and $osc_c$ its length.",
                "$p_h$ is a probability on $Z^n$; over the keys alone the head gives each $p_h / P$, "
                "$P$ the sum over the "
                "keys.",
                "Content gives any probabilities, behind a gate $g_h$ in [0, 1].",
                "Where $R$ reads offsets that are no keys, it gets values within the range. If every "
                "offset of $R$ is in "
                "$B$, the last sum is empty.",
            ),
            steps=_steps(),
            checks=(
                Check("weights on a range, split at its middle", Kind.SYMBOLIC, range_failures),
                Check(
                    "what missing keys and content add, and that it sums to their share", Kind.SYMBOLIC, gate_failures
                ),
                Check(
                    "the worst input is within the bound, in rational numbers",
                    Kind.INSTANCES,
                    bound_failures,
                    cases=(
                        f"{CASES} random layers of one channel along one axis: 1 to 3 heads with any probabilities on "
                        "up to 11 offsets, gates from 0 to 1, windows of up to 9 taps, key grids narrower and wider "
                        "than the window, ranges of any middle",
                    ),
                ),
            ),
            justifies=(
                "conv2attn.convert.certificate.distance.kernel_difference",
                "conv2attn.convert.certificate.distance.distance_from_convolution",
            ),
            tests=(
                "convert.certificate.test_distance.test_no_input_is_beyond_the_distance",
                "learn.freezing.test_freeze.test_no_input_is_beyond_the_certificate",
            ),
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"(\operatorname{Attention} - \operatorname{Conv}_R)_o = \sum_c \sum_k d_{c,k} x_{c,k},\quad \sum_k "
                r"d_{c,k} = \sum_h W_{o,c,h} - \sum_z R_{o,c}(z)",
                "(Attention - Conv_R)_o = sum_c sum_k d_{c,k} x_{c,k}, sum_k d_{c,k} = sum_h "
                "W_{o,c,h} - sum_z R_{o,c}(z)",
            ),
            "The difference is linear in what is read, and each head's probabilities sum to 1, whatever its gate.",
        ),
        Step(
            Formula(
                r"\Bigl|\sum_k d_k x_k\Bigr| = \Bigl|m \sum_k d_k + \sum_k d_k (x_k - m)\Bigr| \le |m| \Bigl|\sum_k "
                r"d_k\Bigr| + \frac{\operatorname{osc}}{2} \sum_k |d_k|",
                "|sum_k d_k x_k| = |m sum_k d_k + sum_k d_k (x_k - m)| <= |m| |sum_k d_k| + osc / 2 sum_k |d_k|",
            ),
            "$|x_k - m| <= osc / 2$.",
        ),
        Step(
            Formula(
                r"(1 - g) \frac{p_k}{P} + g c_k = (1 - g) p_k + (1 - g) \Bigl(\frac{1}{P} - 1\Bigr) p_k + g c_k",
                "(1 - g) p_k / P + g c_k = (1 - g) p_k + (1 - g) (1 / P - 1) p_k + g c_k",
            ),
            "What is added to $(1 - g) p_k$ is not negative, and sums to $(1 - g) (1 - P) + g$ over "
            "the keys, which is at "
            "most $(1 - g_h) (1 - P_h) + g_h$: the keys contain $B$.",
        ),
        Step(
            Formula(
                r"\sum_k |d_k| \le \sum_{z \in \mathbb{Z}^n} |D(z)| + \sum_h \bigl((1 - g_h)(1 - P_h) "
                r"+ g_h\bigr) |W_h| + "
                r"\sum_{z \notin B} |R(z)|",
                "sum_k |d_k| <= sum_{z in Z^n} |D(z)| + sum_h ((1 - g_h) (1 - P_h) + g_h) |W_h| + "
                "sum_{z not in B} |R(z)|",
            ),
            "The triangle inequality: at a key, $d$ is $D$ and what is added; at an offset of $R$ "
            "that is no key, $-R$.",
        ),
    )
