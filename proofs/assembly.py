"""Heads assemble the convolution: the construction of ``convert.construction``, with symbols for all numbers.

The attention sum is written out as it stands in the theorem: every query, every head, every key, with the one-hot
limit of the softmax. It equals the convolution as a polynomial in the weights, the biases and the pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import sympy

from conv2attn.proofs.claim import Check, Claim, Formula, Kind, Step
from conv2attn.proofs.decide import not_nonnegative, unequal
from conv2attn.proofs.geometry import Case, Element, Grid, Pixel, Symbols, convolution, pad, pixels, symbols

CASES = (
    Case((1, 1)),
    Case((3, 3), size=(4, 4)),
    Case((3, 3), pads=(1, 1, 1, 1)),
    Case((2, 3), channels=(2, 2)),
    Case((2, 2), pads=(0, 1, 0, 1)),  # "same" with an even kernel
    Case((4, 1), pads=(1, 2, 0, 0)),
    Case((3, 2), stride=(2, 1), pads=(1, 1, 1, 1), channels=(1, 2)),
    Case((2, 2), stride=(2, 3), size=(4, 4)),
    Case((1, 1), stride=(3, 2), size=(4, 4)),  # a stride larger than the kernel
    Case((2, 3), dilation=(2, 1), pads=(1, 1, 1, 1)),
    Case((3, 2), dilation=(1, 3), size=(3, 4)),
    Case((2, 2), stride=(1, 2), dilation=(2, 2), pads=(2, 2, 2, 2), channels=(2, 1), size=(2, 3)),
    Case((3, 3), pads=(1, 1, 1, 1), channels=(2, 2), groups=2, size=(3, 3)),  # depthwise
    Case((1, 2), channels=(2, 2), groups=1, size=(2, 4)),
    Case((2, 1), stride=(2, 2), channels=(2, 4), groups=2, size=(4, 3)),
    *(Case((3, 3), pads=(1, 1, 1, 1), mode=mode) for mode in ("reflect", "replicate", "circular")),
    *(Case((2, 3), pads=(0, 1, 2, 2), mode=mode, size=(2, 3)) for mode in ("reflect", "replicate", "circular")),
    Case((2, 2), stride=(2, 1), dilation=(1, 2), pads=(1, 1, 2, 2), mode="circular", channels=(2, 2), groups=2),
)


def query_position(case: Case, output: Pixel) -> Pixel:
    """Query (i, j) sits at (s_1 i, s_2 j) of the padded image."""
    return case.stride[0] * output[0], case.stride[1] * output[1]


def head_center(case: Case, tap: Pixel) -> Pixel:
    """The head of tap (m, n) has its centre at (d_1 m, d_2 n)."""
    return case.dilation[0] * tap[0], case.dilation[1] * tap[1]


def score(delta: Pixel, center: Pixel) -> int:
    """v . r_delta for alpha = 1, with r = (|delta|^2, delta_1, delta_2) and v = -(1, -2 Delta_1, -2 Delta_2)."""
    return -(delta[0] ** 2 + delta[1] ** 2) + 2 * center[0] * delta[0] + 2 * center[1] * delta[1]


def padded_keys(case: Case) -> list[Pixel]:
    """All pixels of the padded image."""
    return pixels(case.padded)


Positions = Callable[[Case, Pixel], Pixel]
Score = Callable[[Pixel, Pixel], int]


def one_hot(scores: Sequence[int]) -> list[sympy.Rational]:
    """The limit of softmax(alpha scores) as alpha -> infinity: the maxima share what there is."""
    best = max(scores)
    return [sympy.Rational(int(value == best), scores.count(best)) for value in scores]


def attention(
    case: Case,
    s: Symbols,
    *,
    query: Positions = query_position,
    center: Positions = head_center,
    score: Score = score,
    keys: Callable[[Case], list[Pixel]] = padded_keys,
    taps: Sequence[Pixel] | None = None,
) -> dict[tuple[int, int, int], Element]:
    """b + sum over heads of W_Delta sum_k p_k x_k, by (output channel, row, column).

    Args:
        case: The geometry.
        s: Weights, biases and pixels.
        query: Where an output pixel's query sits.
        center: Where a tap's head looks, from its query.
        score: v . r_delta.
        keys: The pixels that are looked at.
        taps: The taps that have a head; None means all.
    """
    values, grid = pad(case, s), keys(case)
    outputs = {(o, *pixel): s.bias[o] for o in range(case.channels[1]) for pixel in pixels(case.output)}
    for (i, j), (m, n) in product(pixels(case.output), case.taps if taps is None else taps):
        q, Delta = query(case, (i, j)), center(case, (m, n))
        probabilities = one_hot([score((k[0] - q[0], k[1] - q[1]), Delta) for k in grid])
        seen = [(p, k) for p, k in zip(probabilities, grid, strict=True) if p]
        for o in range(case.channels[1]):
            for c in case.mixed(o):
                outputs[o, i, j] += s.weight[o, c, m, n] * weighted(seen, values[c], s)
    return outputs


def weighted(seen: Iterable[tuple[sympy.Rational, Pixel]], channel: Grid, s: Symbols) -> Element:
    """sum_k p_k x_k."""
    return sum((channel[row][column] * p for p, (row, column) in seen), s.zero)


def assembly_failures(
    cases: Iterable[Case] = CASES,
    *,
    query: Positions = query_position,
    center: Positions = head_center,
    score: Score = score,
    keys: Callable[[Case], list[Pixel]] = padded_keys,
) -> list[str]:
    """The outputs in which one-hot attention and convolution differ as polynomials, one for each case."""
    failures = []
    for case in cases:
        s = symbols(case, sympy.QQ)
        expected, found = convolution(case, s), attention(case, s, query=query, center=center, score=score, keys=keys)
        wrong = [index for index, polynomial in expected.items() if polynomial - found[index] != 0]
        failures += [f"{case}: output {i} is {found[i]}, the convolution's {expected[i]}" for i in wrong[:1]]
    return failures


def inside_failures(*, slack: int = 0) -> list[str]:
    """Whether the farthest target, s (o - 1) + d (K - 1), is at most the last key P - 1 - slack, for all numbers."""
    names = "last remainder stride dilation others"  # o - 1, what the stride leaves over, s, d, K - 1
    last, remainder, s, d, others = sympy.symbols(names, integer=True, nonnegative=True)
    length = s * last + remainder + d * others + 1  # P: floor((P - d (K - 1) - 1) / s) = o - 1
    left_over = length - 1 - slack - (s * last + d * others)
    return not_nonnegative(left_over, "last key minus farthest target") + unequal(left_over, remainder, "what is left")


def claims() -> list[Claim]:
    """Claim 5."""
    return [
        Claim(
            name="head-assembly",
            title="Heads assemble the convolution",
            statement=Formula(
                r"b + \sum_h W_{\Delta_h} \sum_k [k = q + \Delta_h]\, x_k"
                r" = b + \sum_{m, n} W_{m, n}\, x_{s_1 i + d_1 m,\ s_2 j + d_2 n}",
                "b + sum_h W_{Delta_h} sum_k [k = q + Delta_h] x_k = b + sum_{m,n} W_{m,n} x_{s1 i + d1 m, s2 j + d2 n}"
                " for q = (s1 i, s2 j), Delta_h = (d1 m, d2 n), x the padded input.",
            ),
            assumptions=(
                "Keys are all pixels of the padded input; zeros are zero values, so values have no bias.",
                "One head for each tap, in the one-hot limit (claim one-hot-limit).",
            ),
            steps=_steps(),
            checks=(
                Check("every target lies inside the padded input, for all sizes", Kind.SYMBOLIC, inside_failures),
                Check(
                    "attention and convolution are the same polynomial in weights, biases and pixels",
                    Kind.INSTANCES,
                    assembly_failures,
                    cases=tuple(map(str, CASES)),
                ),
            ),
            justifies=(
                "conv2attn.convert.construction.attention_from_conv",
                "conv2attn.convert.spec.ConvSpec.query_positions",
                "conv2attn.convert.spec.ConvSpec.tap_offsets",
            ),
            source="the theorem of the article and the talk, for every stride, dilation, padding and group",
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"o_a = \Bigl\lfloor \frac{P_a - d_a (K_a - 1) - 1}{s_a} \Bigr\rfloor + 1,\quad 0 \le i_a \le o_a - 1",
                "o_a = floor((P_a - d_a (K_a - 1) - 1) / s_a) + 1 and 0 <= i_a <= o_a - 1, on each axis a",
            ),
            "The output size of a convolution whose padded input has P_a pixels along axis a.",
        ),
        Step(
            Formula(
                r"0 \le s_a i_a + d_a m_a \le s_a (o_a - 1) + d_a (K_a - 1) \le P_a - 1",
                "0 <= s_a i_a + d_a m_a <= s_a (o_a - 1) + d_a (K_a - 1) <= P_a - 1",
            ),
            "s floor(x / s) <= x. So the target q + Delta is a pixel of the padded input: a key, whatever the query.",
        ),
        Step(
            Formula(
                r"\sum_k [k = q + \Delta_h]\, x_k = x_{q + \Delta_h}",
                "sum_k [k = q + Delta_h] x_k = x_{q + Delta_h}",
            ),
            "Exactly one key is the target. If it were no key, the nearest keys would share the attention instead.",
        ),
        Step(
            Formula(
                r"\sum_h W_{\Delta_h} x_{q + \Delta_h} = \sum_{m, n} W_{m, n}\, x_{s_1 i + d_1 m,\ s_2 j + d_2 n}",
                "sum_h W_{Delta_h} x_{q + Delta_h} = sum_{m,n} W_{m,n} x_{s1 i + d1 m, s2 j + d2 n}",
            ),
            "Heads and taps correspond one to one. With groups W_{m,n} is block diagonal, which the sum does not "
            "notice.",
        ),
    )
