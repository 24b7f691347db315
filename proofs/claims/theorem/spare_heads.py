"""Spare heads: what heads beside those of the taps add, at 0 and trained; in front of them, the non-local block.

A spare head may look anywhere, by content or position: here its probabilities are any numbers. The layer of
``assembly.py`` has symbols for all weights and pixels, and so have the heads beside it. In floating point signs of
zeros and overflow matter too: ``heads_at_0_keep_bits``.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement, product
from typing import Any

import sympy
from sympy.polys.rings import ring

from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import Point
from ..common.small import Case, Element, Entries, attention, convolution_of, entries, pad, padded_keys
from ..common.sums import Format, folded, round_to, shapes

CASES = (
    Case.sized((3, 3), (2, 2), channels=(1, 2)),
    Case.sized((3, 2), (3, 2), stride=(2, 1), pads=((1, 1), (0, 1)), channels=(2, 2), groups=2),
    Case.sized((4,), (2,), dilation=(2,), channels=(2, 1)),
)
IDENTITIES = (Case.sized((2, 3), (1, 1), channels=(2, 2)), Case.sized((4,), (1,), channels=(3, 3)))
HEADS = 2
ZEROS, NUMBERS = (0.0, -0.0), (0.0, -0.0, 5e-324, -5e-324, 1.0, -1.5, 1e308, -1e308)
PRECISION, WIDTH = 4, 4  # of the sums whose orders are all computed
WIDTHS, CHANNELS = (*range(1, 33), 64, 128, 256, 512, 1024), tuple(2**power for power in range(15))
PIXELS = 2**32


SINGLE, DOUBLE, BRAIN, HALF = Format(24, -126), Format(53, -1022), Format(8, -126), Format(11, -14)
SUMMED = {SINGLE: SINGLE, DOUBLE: DOUBLE, BRAIN: SINGLE, HALF: SINGLE}  # formats of numbers, and of their sums


def spare_symbols(case: Case, heads: int) -> tuple[Entries, dict[Point, Element]]:
    """Symbols for a convolution's numbers, and for the spare heads': p, W_val and W_out of each, by head and entry.

    Keys: ("p", head, output, key) is the attention that an output's query pays to a key, ("v", head, channel) a row of
    W_val with D_h = 1, and ("z", head, output channel) of W_out.
    """
    counted = entries(case, int)
    size = len(counted.weight) + len(counted.bias) + len(counted.image)
    outputs, inputs = range(case.channels[1]), range(case.channels[0])
    names: list[Any] = [
        *(("p", h, output, key) for h in range(heads) for output in case.outputs for key in padded_keys(case)),
        *(("v", h, c) for h in range(heads) for c in inputs),
        *(("z", h, o) for h in range(heads) for o in outputs),
    ]
    _, *symbols = ring([f"s{number}" for number in range(size + len(names))], sympy.QQ)
    drawn = iter(symbols)
    return entries(case, drawn.__next__), dict(zip(names, drawn, strict=True))


def spare_output(case: Case, s: Entries, own: dict[Point, Element], heads: int) -> dict[Point, Element]:
    """sum_j W_out^j sum_k p^j_k W_val^j x_k, by (output channel, *output)."""
    values, found = pad(case, s), dict.fromkeys(convolution_of(case, s), s.zero)
    for o, *output in found:
        for h in range(heads):
            for key in padded_keys(case):
                read = sum((own["v", h, c] * values[c, *key] for c in range(case.channels[0])), s.zero)
                found[o, *output] += own["z", h, o] * own["p", h, tuple(output), key] * read
    return found


def with_heads(case: Case, s: Entries, own: dict[Point, Element], heads: int) -> dict[Point, Element]:
    """The layer of K^n + M heads, one after the other: those of the taps, then the spare ones."""
    spare = spare_output(case, s, own, heads)
    return {place: found + spare[place] for place, found in attention(case, s).items()}


def spare_failures(cases: Iterable[Case] = CASES, *, start: int = 0, missing: int = 0) -> Failures:
    """The outputs that are not the convolution plus what the heads give, or, with W_out = start, the convolution.

    Args:
        cases: The convolutions.
        start: The value of W_out before training.
        missing: Heads that the sum leaves out.
    """
    for case in cases:
        s, own = spare_symbols(case, HEADS)
        expected, given = convolution_of(case, s), spare_output(case, s, own, HEADS - missing)
        found = with_heads(case, s, own, HEADS)
        begun = {name: start * (value**0) if name[0] == "z" else value for name, value in own.items()}
        first = with_heads(case, s, begun, HEADS)
        for place, polynomial in expected.items():
            if found[place] != polynomial + given[place]:
                yield f"{case}: trained, output {place} is {found[place]}"
            if first[place] != polynomial:
                yield f"{case}: at the start, output {place} is {first[place]}, the convolution's {polynomial}"


def block_failures(cases: Iterable[Case] = IDENTITIES, *, residual: int = 1, heads: int = 1) -> Failures:
    """The outputs in which an identity with a spare head is not x + W_out sum_k p_k W_val x_k, the non-local block.

    Args:
        cases: Convolutions of one tap.
        residual: Factor of x in the block.
        heads: Spare heads of the layer; the block has one.
    """
    for case in cases:
        s, own = spare_symbols(case, heads)
        one = s.zero + 1
        weight = {(o, c, *tap): one if o == c else s.zero for o, c, *tap in s.weight}
        layer = replace(s, weight=weight, bias=[s.zero] * case.channels[1])
        found = with_heads(case, layer, own, heads)
        for (o, *pixel), polynomial in found.items():
            block = residual * s.image[o, *pixel]
            for key in padded_keys(case):
                read = sum((own["v", 0, c] * s.image[c, *key] for c in range(case.channels[0])), s.zero)
                block += own["z", 0, o] * own["p", 0, tuple(pixel), key] * read
            if polynomial != block:
                yield f"{case}: output {(o, *pixel)} is {polynomial}, the block's {block}"


@claim(
    status=Status.COQ,
    scope="Exact arithmetic; heads with any scores, of content and position, over the layer's keys, and any number of "
    "them. `heads-at-0-keep-bits` is about floating point.",
    source="Theorem 1 of the article, which asks for at least as many heads as taps",
    justifies=("convert/layer/spare.py: WithSpareHeads",),
    coq=("SpareHeads.v: spare_heads_add, spare_heads_at_0, theorem_1_with_spare_heads",),
    tests=("convert/layer/test_spare.py", "convert/network/test_graft.py"),
)
def spare_heads(*, start: int = 0, missing: int = 0) -> Checks:
    r"""Heads beside those of the taps add what they give through $W_{out}$: exactly 0 where it is 0.

    With $M$ more heads $j$, of probabilities $p^j_k$ that may depend on the image,

    ```math
    \text{layer}(x)_q = \Bigl( b + \sum_m W_m x_{q + \Delta_m} \Bigr)
        + \sum_{j = 1}^{M} W_{out}^j \sum_k p^j_k(q)\, W_{val}^j x_k .
    ```

    **Proof.** The output projection of concatenated heads is the sum of the heads, each times its rows of $W_{out}$.
    The heads of the taps give the convolution (`head-assembly`), and no spare head enters their scores or values. Where
    $W_{out}^j = 0$ its term is 0 whatever $p^j$ and $W_{val}^j$ are, and so is its derivative in $x$, $W_{qry}$,
    $W_{key}$ and $W_{val}$; that in $W_{out}^j$ is what the head reads, so training can begin. $\square$
    """
    yield Check(
        "the layer is the convolution plus the spare heads as a polynomial in all of them, and with $W_{out} = 0$ it "
        "is the convolution",
        lambda: spare_failures(start=start, missing=missing),
        f"{len(CASES)} convolutions, {HEADS} spare heads",
    )


def bits(number: float) -> bytes:
    """The bits of a number in binary64, of which 0 and -0 have different ones."""
    return struct.pack(">d", number)


def sign_failures(
    *, start: tuple[float, ...] = (0.0,), sign: int = -1, slope: Callable[[float], float] = lambda zero: -(0.0 - zero)
) -> Failures:
    """The numbers that lose their bits to heads at 0.

    Args:
        start: Numbers in the heads' sum beside its products, all of which are 0 or -0.
        sign: Factor of the heads' sum in the output.
        slope: The gradient that reaches the image, of the heads' zeros.
    """
    for count in range(1, 4):
        for products, place in product(product(ZEROS, repeat=count), range(count + 1)):
            first, *rest = (*products[:place], *start, *products[place:])
            total = reduce(operator.add, rest, first)
            for y in NUMBERS:
                if bits(y + sign * total) != bits(y):
                    yield f"{y} and the sum of {(first, *rest)} times {sign}"
    for gradient, zero in product(NUMBERS, ZEROS):
        if bits(gradient + slope(zero)) != bits(gradient) or bits(slope(zero) + gradient) != bits(gradient):
            yield f"the gradient {gradient} and the heads' {zero}"


def logarithm(of: Format) -> Fraction:
    """At most the logarithm of the largest number: 0.693 < log 2."""
    return Fraction(693, 1000) * of.top


def score_limit(width: int, of: Format) -> Fraction:
    """L: the largest power of two with 2 (D + 4) eps D^(1/2) L^2 at most half the logarithm of the largest number."""
    power = 0
    while (2 * (width + 4) * of.eps) ** 2 * width * Fraction(16) ** (power + 1) * 4 <= logarithm(of) ** 2:
        power += 1
    while (2 * (width + 4) * of.eps) ** 2 * width * Fraction(16) ** power * 4 > logarithm(of) ** 2:
        power -= 1
    return Fraction(2) ** power


def score_failures(
    *, limit: Callable[[int, Format], Fraction] = score_limit, roundings: Callable[[int], int] = lambda width: width + 4
) -> Failures:
    """Widths and formats in which a score computed twice may differ by more than an exponential allows.

    Args:
        limit: Where queries and keys are clamped.
        roundings: How many times eps times its terms a computed score is off, at most.
    """
    eps, one = Fraction(2, 2**PRECISION), Fraction(1)
    values = (one, 1 - eps / 2, -(1 - eps / 2), one - eps)
    for width in range(2, WIDTH + 1):
        for terms in combinations_with_replacement(values, width):
            sums = {
                folded(shape, iter(terms), lambda left, right: round_to(left + right, PRECISION))
                for shape in shapes(width)
            }
            if max(sums) - min(sums) > 2 * roundings(width) * eps * sum(map(abs, terms)):
                yield f"two orders of {terms} differ by {max(sums) - min(sums)}"
    for of in (SINGLE, DOUBLE):
        for width in WIDTHS:
            squared = (2 * roundings(width) * of.eps * limit(width, of) ** 2) ** 2 * width
            if 4 * squared > logarithm(of) ** 2:
                yield f"width {width}, {of}: the exponential of the difference may overflow"


def input_limit(channels: int, of: Format) -> Fraction:
    """X: the largest power of two up to max / (2 C^(1/2)) and to the root of the largest number of the sums."""
    summed, power = SUMMED[of], 0
    while 4 ** (power + 1) * 4 * channels <= of.largest**2 and 4 ** (power + 1) <= summed.largest:
        power += 1
    return Fraction(2) ** power


def overflow_failures(*, limit: Callable[[int, Format], Fraction] = input_limit) -> Failures:
    """Formats in which a projection of clamped pixels, or a sum of its values over the pixels, may overflow."""
    for of, summed in SUMMED.items():
        for channels in CHANNELS:
            squared = channels * limit(channels, of) ** 2  # of a projection by weights within 1 / sqrt(channels)
            if 4 * squared > of.largest**2 or squared * PIXELS**2 > summed.largest**2:
                yield f"{channels} channels, {of}: pixels up to {limit(channels, of)}"


@claim(
    status=Status.INSTANCES,
    scope="Eager mode, rounding to nearest. The image and the gradient that the layer receives are finite, the heads "
    "have their first weights. Kernels sum in any order, in single precision or better, and round queries and keys in "
    "their backward pass as in the forward one.",
    source="derived here",
    justifies=("convert/layer/spare.py: input_limit, score_limit, WithSpareHeads",),
    tests=("convert/layer/test_spare.py", "convert/network/test_graft_bits.py", "proofs/claims/test_spare_heads.py"),
)
def heads_at_0_keep_bits(
    *,
    start: tuple[float, ...] = (0.0,),
    sign: int = -1,
    slope: Callable[[float], float] = lambda zero: -(0.0 - zero),
    scores: Callable[[int, Format], Fraction] = score_limit,
    roundings: Callable[[int], int] = lambda width: width + 4,
    inputs: Callable[[int, Format], Fraction] = input_limit,
) -> Checks:
    r"""In floating point, too, heads with $W_{out} = 0$ change no bit of outputs and gradients.

    Three things could. **Signs of zeros.** $-0 + 0 = +0$, but $y - (+0)$ and $y + (-0)$ have the bits of $y$ for
    every $y$. The layer subtracts $\sum_j (-W_{out}^j) \text{head}_j$. Its products are $0$ or $-0$; the sum has $+0$
    as one more summand, hence is $+0$ in every order. The gradient that the heads send to the image is $0$ or $-0$,
    and is replaced by $-0$.

    **Scores.** $0$ times a finite number is $0$, but $0 \cdot \infty$ is NaN. Fused kernels compute the scores $s_k$
    again in their backward pass, and $\exp(s_k - \ell)$ with the $\ell = \log \sum_k \exp s_k$ of the forward one.
    Queries and keys are clamped at $\pm L$, so that a score, divided by $\sqrt{D}$, has terms of sum at most
    $\sqrt{D} L^2$. A score is off by at most $D + 2$ roundings of that, and $\ell$ and the difference by four more
    together: the exponent is at most $2 (D + 4) \epsilon \sqrt{D} L^2$, with $\epsilon$ twice the unit roundoff since
    tensor cores cut off. $L$ is the largest power of two with which this is at most half the logarithm of the largest
    number.

    **Projections.** Pixels are clamped at $\pm X$. With weights within $1 / \sqrt{C}$, $W x$ is at most $\sqrt{C} X$,
    half the largest number at most, and the sum of as many values as there are pixels is finite.
    """
    yield Check(
        "sums of zeros with a $+0$ are $+0$ in all orders; numbers keep their bits when it is subtracted, and "
        "gradients when $-0$ is added",
        lambda: sign_failures(start=start, sign=sign, slope=slope),
        "up to 3 products",
    )
    yield Check(
        "two orders of a score's sum differ by at most $2 (D + 4) \\epsilon$ times its terms, and with $L$ the "
        "exponential of that is finite",
        lambda: score_failures(limit=scores, roundings=roundings),
        f"sums of up to {WIDTH} terms with {PRECISION} bits; widths to {WIDTHS[-1]} in single and double precision",
    )
    yield Check(
        "projections of pixels within $X$ are at most half the largest number, and sums of $2^{32}$ values are finite",
        lambda: overflow_failures(limit=inputs),
        f"float64, float32, bfloat16 and float16, to {CHANNELS[-1]:,} channels",
    )


@claim(
    status=Status.INSTANCES,
    scope="As `spare-heads`, for the kernel of one tap whose slice is the identity matrix.",
    source="Wang, Girshick, Gupta and He, Non-local neural networks, CVPR 2018, eq. (6)",
    justifies=("convert/layer/spare.py: WithSpareHeads",),
    tests=("convert/layer/test_spare.py",),
)
def identity_with_spare_heads(*, residual: int = 1, heads: int = 1) -> Checks:
    r"""An identity with one spare head is the non-local block.

    ```math
    z_q = x_q + W_{out} \sum_k \operatorname{softmax}_k\bigl( (W_{qry} x_q)^\top W_{key} x_k \bigr)\, W_{val} x_k ,
    ```

    the block in its embedded Gaussian form, whose last projection starts at 0. So a layer with spare heads in front of
    its taps is that block and then the convolution: `head-assembly` for a kernel of one tap, `spare-heads`, and
    `head-assembly` again.
    """
    yield Check(
        "the layer of one tap with the identity and a spare head is the block, as a polynomial",
        lambda: block_failures(residual=residual, heads=heads),
        f"{len(IDENTITIES)} identities",
    )
