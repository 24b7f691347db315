"""Heads assemble the convolution: the construction of ``layer/construction.py``, with symbols for all numbers.

The attention sum is written out as it stands in the theorem: every query, every head, every key, with the one-hot
limit of the softmax. It equals the convolution as a polynomial in the weights, the biases and the pixels.

One-hot heads along other numbers of axes than two: what tells a convolution apart is where its taps fall.

Where the queries and centres of ``convert/spec.py`` lie is the same along every axis. ``assembly.py`` writes images
out, with every padding mode and groups; this writes out 1-D and 3-D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import sympy
import sympy as sp

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Status, claim
from ..common.small_convolutions import Case, Element, Grid, Pixel, Symbols, alpha, convolution, pad, pixels, symbols
from .encoding import dot, encoding, head_vector

STRIDE, DILATION, OUTPUT, TAP, MIDDLE_TAP = sympy.symbols("s d i m m_0", integer=True, nonnegative=True)
KERNEL_SIZE = sympy.Symbol("K", integer=True, positive=True)
QUERY = STRIDE * OUTPUT + DILATION * MIDDLE_TAP  # on one axis, like the next two
CENTER = DILATION * (TAP - MIDDLE_TAP)
TARGET = STRIDE * OUTPUT + DILATION * TAP


def middle_of(taps: Expr) -> Expr:
    """m0 of K taps."""
    return sympy.floor((taps - 1) / 2)


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
    Case((4, 3), stride=(2, 1), dilation=(2, 3), pads=(3, 3, 2, 2), size=(3, 4)),
    Case((2, 2), stride=(1, 2), dilation=(2, 2), pads=(2, 2, 2, 2), channels=(2, 1), size=(2, 3)),
    Case((3, 3), pads=(1, 1, 1, 1), channels=(2, 2), groups=2, size=(3, 3)),  # depthwise
    Case((1, 2), channels=(2, 2), groups=1, size=(2, 4)),
    Case((2, 1), stride=(2, 2), channels=(2, 4), groups=2, size=(4, 3)),
    *(Case((3, 3), pads=(1, 1, 1, 1), mode=mode) for mode in ("reflect", "replicate", "circular")),
    *(Case((2, 3), pads=(0, 1, 2, 2), mode=mode, size=(2, 3)) for mode in ("reflect", "replicate", "circular")),
    Case((2, 2), stride=(2, 1), dilation=(1, 2), pads=(1, 1, 2, 2), mode="circular", channels=(2, 2), groups=2),
)


def middle_tap(case: Case) -> Pixel:
    """m0 = floor((K - 1) / 2) on each axis: the tap that a query sits under."""
    return (case.kernel[0] - 1) // 2, (case.kernel[1] - 1) // 2


def query_position(case: Case, output: Pixel) -> Pixel:
    """Query i sits at s i + d m0 of the padded image on each axis, under the kernel's middle tap."""
    (s_1, s_2), (d_1, d_2), (m_1, m_2) = case.stride, case.dilation, middle_tap(case)
    return s_1 * output[0] + d_1 * m_1, s_2 * output[1] + d_2 * m_2


def head_center(case: Case, tap: Pixel) -> Pixel:
    """The head of tap m has its centre at d (m - m0) on each axis: the tap's offset from the middle one."""
    (d_1, d_2), (m_1, m_2) = case.dilation, middle_tap(case)
    return d_1 * (tap[0] - m_1), d_2 * (tap[1] - m_2)


def score(delta: Pixel, center: Pixel) -> int:
    """V . r_delta for alpha = 1, with r = (|delta|^2, delta_1, delta_2) and v = -(1, -2 Delta_1, -2 Delta_2)."""
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
) -> dict[tuple[int, int, int], Element]:
    """B + sum over heads of W_Delta sum_k p_k x_k, by (output channel, row, column).

    Args:
        case: The geometry.
        s: Weights, biases and pixels.
        query: Where an output pixel's query sits.
        center: Where a tap's head looks, from its query.
        score: v . r_delta.
        keys: The pixels that are looked at.
    """
    values, grid = pad(case, s), keys(case)
    outputs = {(o, *pixel): s.bias[o] for o in range(case.channels[1]) for pixel in pixels(case.output)}
    for (i, j), (m, n) in product(pixels(case.output), case.taps):
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


def inside_failures(*, slack: int = 0, query: Expr = QUERY, middle: Callable[[Expr], Expr] = middle_of) -> list[str]:
    """Whether q + Delta = s i + d m, and queries and targets lie between 0 and P - 1 - slack, for all sizes of an axis.

    Symbols that are at least 0 write out i <= o - 1 and m <= K - 1; P is d (K - 1) + 1 + s (o - 1) and what the stride
    leaves over. The middle tap is one of the taps, so what holds of q for every tap m in the place of m0 holds for it.
    """
    failures = unequal(query + CENTER, TARGET, "query plus centre minus target")
    later, others, remainder = sympy.symbols("o_later K_later r", integer=True, nonnegative=True)
    last_key = STRIDE * (OUTPUT + later) + DILATION * (TAP + others) + remainder
    for what, position in (("target", TARGET), ("query", query.subs(MIDDLE_TAP, TAP))):
        failures += not_nonnegative(position, what)
        failures += not_nonnegative(last_key - slack - position, f"last key minus {what}")
    half = sympy.Symbol("half", integer=True, nonnegative=True)
    for taps in (2 * half + 1, 2 * half + 2):  # every K is odd or even
        found = sympy.simplify(middle(taps))
        failures += not_nonnegative(found, f"m0 for K = {taps}")
        failures += not_nonnegative(taps - 1 - found, f"K - 1 - m0 for K = {taps}")
    return failures


@claim(
    status=Status.COQ,
    scope=r"Exact arithmetic. Convolutions along $n$ axes, of every kernel, stride, dilation, number of groups and "
    r"bias, padded with zeros, by reflection, replication or wrapping around, unevenly too; the keys are all "
    r"pixels of the padded input, and values have no bias. $D_p \ge n + 1$, $D_k \ge n + 1$ with the identity matrix "
    r"for $\hat W_{key}$, or $D_k \ge 1$ with a matrix for each head; at least as many heads as taps, at "
    r"most $\min(D_h, D_{out})$ output channels. Images of every size with values of at most $B$.",
    source="Theorem 1 of the article and the talk, for every stride, dilation, padding and group",
    justifies=(
        "convert/layer/construction.py: attention_from_conv",
        "convert/spec.py: ConvSpec.query_positions, ConvSpec.tap_offsets",
    ),
    coq=(
        "TheoremN.v: theorem_1_padded, theorem_1_whole, theorem_1_every_key_dimension",
        "Theorem1.v: theorem_1_limit, theorem_1_exists",
        "Padding.v: padded_within_bounds",
    ),
    tests=(
        "proofs/claims/test_assembly.py: test_the_polynomial_of_the_proof_takes_the_values_of_the_code",
        "convert/engines/test_equivalence.py: test_integers_give_bitwise_equal_outputs_and_gradients",
    ),
)
def head_assembly() -> Checks:
    r"""Theorem 1: multi-head self-attention expresses every convolution.

    For every convolution, every $B$ and every $\varepsilon > 0$ there is an $\alpha_0$ such that for all
    $\alpha \ge \alpha_0$ and all images the layer with one head for each tap $m$ of the kernel differs from the
    convolution by less than $\varepsilon$, at every output. On each axis, with stride $s$, dilation $d$ and $K$ taps,
    query $i$ and the centre of the head are

    ```math
    q = {=QUERY}, \qquad \Delta_m = {=CENTER}, \qquad m_0 = {=middle_of(KERNEL_SIZE)},
    ```

    and the head's value and output projections multiply to the kernel's slice $W_m$.

    **Proof.** The head of tap $m$ has its highest score at the key $q + \Delta_m = {=TARGET}$, the pixel that the tap
    reads (`encoding-identity`, `unique-maximum`); the centres count from the query, so where it sits changes nothing.
    That pixel is a key: a padded axis of $P$ pixels has $o = \lfloor (P - d (K - 1) - 1) / s \rfloor + 1$ outputs, so

    ```math
    0 \le {=TARGET} \le s (o - 1) + d (K - 1) \le P - 1 ,
    ```

    and likewise $0 \le q \le P - 1$, since $m_0$ is a tap. Hence the head's probabilities tend to one-hot at that key
    as $\alpha \to \infty$ (`one-hot-limit`), at a rate that depends neither on the image nor on its size
    (`tail-bound`), and the layer's output tends to

    ```math
    b + \sum_h W_{\Delta_h} \sum_k [k = q + \Delta_h]\, x_k = b + \sum_m W_m\, x_{{=TARGET}} ,
    ```

    which is the convolution. With groups $W_m$ is block diagonal, which the sum does not notice. $\square$
    `error-bound` says how large $\alpha_0$ is. Without the padding's keys the nearest pixels would share the
    attention: `padded-keys`.
    """
    yield Check("every query and every target lies inside the padded input, for all sizes", inside_failures)
    yield Check(
        "one-hot attention and convolution are the same polynomial in weights, biases and pixels",
        assembly_failures,
        f"{len(CASES)} convolutions of images",
    )


@dataclass(frozen=True)
class Geometry:
    """A small n-D convolution: sizes per axis, of the padded input and of the kernel."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def taps(self) -> list[tuple[int, ...]]:
        """Kernel taps, m."""
        return list(product(*map(range, self.kernel)))

    @property
    def queries(self) -> list[tuple[int, ...]]:
        """Output pixels, i."""
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        counts = [(n - span) // s + 1 for n, span, s in zip(self.size, spans, self.stride, strict=True)]
        return list(product(*map(range, counts)))


GEOMETRIES = (
    Geometry((7,), (3,), (2,), (2,)),
    Geometry((6,), (2,), (1,), (3,)),
    Geometry((3, 3, 4), (2, 1, 2), (1, 1, 2), (1, 1, 1)),
    Geometry((4, 3, 3), (2, 2, 1), (1, 1, 2), (2, 1, 1)),
)


def query_at(output: int, stride: int, dilation: int, taps: int) -> int:
    """S i + d m0: under the middle tap."""
    return stride * output + dilation * ((taps - 1) // 2)


def center_of(tap: int, dilation: int, taps: int) -> int:
    """D (m - m0): the tap's offset from the middle one."""
    return dilation * (tap - (taps - 1) // 2)


Query = Callable[[int, int, int, int], int]
Center = Callable[[int, int, int], int]


@claim(
    status=Status.INSTANCES,
    scope="One-hot heads; the keys are the pixels of the padded input, along one and three axes.",
    justifies=("convert/spec.py: ConvSpec.tap_offsets, ConvSpec.query_positions",),
    tests=("proofs/claims/test_dimensions.py: test_the_codes_centres_and_queries_are_those_of_the_assembly",),
    is_lemma=True,
)
def dimension_assembly(*, query: Query = query_at, center: Center = center_of) -> Checks:
    r"""The theorem along one and three axes.

    The layer of `head-assembly` has $K_1 \cdots K_n$ heads along $n$ axes: queries and centres are the same along each
    axis, and the score is a sum over axes.
    """
    yield Check(
        "attention with symbolic weights and pixels is the convolution",
        lambda: [failure for geometry in GEOMETRIES for failure in _other_output(geometry, query, center)],
        f"{len(GEOMETRIES)} convolutions in 1-D and 3-D",
    )


def _other_output(geometry: Geometry, query: Query, center: Center) -> list[str]:
    """Output pixels at which one-hot attention differs from the convolution."""
    x, weight = sp.IndexedBase("x"), sp.IndexedBase("W")
    keys = list(product(*map(range, geometry.size)))
    found = []
    for output in geometry.queries:
        axes = list(zip(output, geometry.stride, geometry.dilation, geometry.kernel, strict=True))
        position = tuple(query(i, s, d, taps) for i, s, d, taps in axes)
        attended = convolved = sp.Integer(0)
        for tap in geometry.taps:
            vector = head_vector(tuple(center(m, d, taps) for m, (_, _, d, taps) in zip(tap, axes, strict=True)))
            scores = {key: _score_at(key, position, vector) for key in keys}
            attended += sum(weight[tap] * x[key] for key in keys if scores[key] == max(scores.values()))
            convolved += weight[tap] * x[tuple(s * i + d * m for m, (i, s, d, _) in zip(tap, axes, strict=True))]
        if attended - convolved != 0:
            found.append(f"{geometry}: output {output} is {attended}, not {convolved}")
    return found


def _score_at(key: tuple[int, ...], query: tuple[int, ...], vector: tuple[Any, ...]) -> int:
    """The score of a key, for alpha = 1."""
    delta = tuple(k - q for k, q in zip(key, query, strict=True))
    return int(dot(encoding(delta), tuple(sp.sympify(entry).subs(alpha, 1) for entry in vector)))
