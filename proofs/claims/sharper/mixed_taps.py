"""One dimension is enough in the limit, if heads may look at several taps at once.

Head h sees the taps h, ..., N, all of them alike, so that neighbouring heads differ by one tap. Nothing here
contradicts the claim ``one-dimension-two-targets``: no head but the last sits on a tap of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import sympy
from sympy import QQ

from ...prover.checks import Expr, has_negative_coefficient, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Status, claim
from ..common.lattice import iv
from ..common.small_convolutions import Pixel, pixels
from .head_dimension import exact

HEADS, HEAD, TAP = sympy.symbols("N h j", integer=True, positive=True)
T, OTHERS = sympy.symbols("t n", positive=True)  # how far apart the scales are; keys that are no tap
ENCODING, HEAD_VECTOR = -(T ** (-2 * TAP)), T ** (2 * HEAD - 1)  # r at tap j, where j = 0 is no tap; v of head h
EXPONENT = 2 * (HEAD - TAP) - 1  # v_h r_j = -t^EXPONENT
LARGEST = T ** EXPONENT.subs([(HEAD, HEADS), (TAP, 0)])  # score in size
SEEN = HEADS - HEAD + 1  # the taps h, ..., N
MISS = 1 / T + (HEADS + OTHERS) * sympy.exp(-T)

COUNTS = (1, 2, 4, 9)
SCALES = (40, 10**4, 10**8)
BETAS = (Fraction(1, 10**6), Fraction(1, 10**12))
KERNEL, IMAGE, CHANNELS = (3, 3), (4, 5), 2
TAPS = len(pixels(KERNEL))
REST = len(pixels(IMAGE)) - TAPS  # keys that are no tap
GROWTH = 8_900_000  # of the values of nine heads with v_h = h, rounded up
MILLIONS = sympy.Rational(GROWTH, 10**6).n(2)


def score_failures(*, exponent: Expr = EXPONENT) -> list[str]:
    """Whether v_h r_j = -t^exponent, with exponents of at most -1 for taps that head h sees, at least 1 for others."""
    more = sympy.Symbol("e", integer=True, nonnegative=True)
    failures = unequal(sympy.powsimp(HEAD_VECTOR * ENCODING), -(T**exponent), "v_h r_j")
    failures += not_nonnegative(-1 - exponent.subs(TAP, HEAD + more), "-1 - exponent for j >= h")
    return failures + not_nonnegative(exponent.subs(TAP, HEAD - 1 - more) - 1, "exponent - 1 for j < h, j = 0 too")


def miss_failures(*, miss: Callable[[Expr, Expr], Expr] = lambda flat, rest: flat + rest) -> list[str]:
    """Whether sum_j (1/m - a_j / S)^+ <= 1/t + c, for m weights a_j >= 1 - 1/t and all weights S <= m + c."""
    m = 1 + sympy.Symbol("e", nonnegative=True)
    flat, rest = sympy.symbols("f c", positive=True)  # 1/t, and (N + n) exp(-t)
    lacking = m * (1 / m - (1 - flat) / (m + rest))
    return has_negative_coefficient(sympy.together(miss(flat, rest) - lacking), "1/t + c minus what is lacking")


def values(kernel: Sequence[Any], *, seen: Callable[[int, int], int] = lambda taps, head: taps - head + 1) -> list[Any]:
    """V_h = (N - h + 1) (W_h - W_{h-1}) with W_0 = 0, for h = 1, ..., N."""
    before = [0 * kernel[0], *kernel[:-1]]
    return [seen(len(kernel), h) * (W - V) for h, (W, V) in enumerate(zip(kernel, before, strict=True), start=1)]


def telescoping_failures(
    counts: Iterable[int] = COUNTS,
    *,
    seen: Callable[[int, int], int] = lambda taps, head: taps - head + 1,
    growth: Callable[[int], int] = lambda taps: 2 * taps,
) -> list[str]:
    """Whether heads that see the taps h, ..., N alike read W_j at tap j, with values of at most growth max |W|."""
    failures = []
    for count in counts:
        W = sympy.symbols(f"W1:{count + 1}", real=True)
        V = values(W, seen=seen)
        for j in range(count):
            read = sum(V[h] / (count - h) for h in range(j + 1))
            failures += unequal(read, W[j], f"{count} taps: what is read at tap {j + 1}")
        largest = max(sum(map(abs, sympy.Poly(value, *W).coeffs())) for value in V)
        failures += [] if largest <= growth(count) else [f"{count} taps: values of {largest} times the kernel"]
    return failures


def vandermonde(taps: int) -> list[list[Fraction]]:
    """j^h for v_h = h and r_j = ln j: a row of weights for each head."""
    return [[Fraction(j) ** h for j in range(1, taps + 1)] for h in range(1, taps + 1)]


def solved_values(taps: int) -> list[list[Fraction]]:
    """The matrix that takes W_1, ..., W_N to the V_h with sum_h (j^h / sum_i i^h) V_h = W_j."""
    rows = [[QQ(int(entry), int(sum(row))) for entry in row] for row in vandermonde(taps)]
    inverse = exact(rows).transpose().inv().to_list()
    return [[Fraction(int(entry.numerator), int(entry.denominator)) for entry in row] for row in inverse]


def growth_failures(*, growth: int = GROWTH, taps: int = 9) -> list[str]:
    """Whether these values are at most growth max |W|, and not below 99 % of it."""
    found = max(sum(map(abs, row)) for row in solved_values(taps))
    is_close = Fraction(99, 100) * growth <= found <= growth
    return [] if is_close else [f"{taps} taps: values of {float(found):.4g} times the kernel"]


def scales_failures(scales: Iterable[int] = SCALES, *, gap: int = 2, factor: Fraction = Fraction(1)) -> list[str]:
    """Whether the layer of the statement is within its bound, for a random convolution, in interval arithmetic."""
    failures = []
    for t in map(iv.mpf, scales):
        weights = [[iv.exp(-(t ** (2 * h - 1 - gap * j))) for j in range(TAPS + 1)] for h in range(1, TAPS + 1)]
        bound = 2 * TAPS * (1 / t + (TAPS + REST) * iv.exp(-t)) * factor.numerator / factor.denominator
        failures += _beyond(weights, values, bound)
    return failures[:5]


def betas_failures(betas: Iterable[Fraction] = BETAS, *, factor: Fraction = Fraction(1)) -> list[str]:
    """Whether v_h = h with solved values errs by at most n beta growth N sum |W| osc, in fractions; beta = exp(-B)."""
    failures, solved = [], solved_values(TAPS)
    for beta in betas:
        weights = [[beta**h, *row] for h, row in enumerate(vandermonde(TAPS), start=1)]
        bound = REST * beta * GROWTH * TAPS * factor
        failures += _beyond(weights, lambda W: [sum(a * w for a, w in zip(r, W, strict=True)) for r in solved], bound)
    return failures[:5]


def _beyond(weights: list[list[Any]], solve: Callable[[Sequence[int]], list[Any]], bound: Any) -> list[str]:
    """Queries at which attention minus convolution exceeds bound sum_c osc_c sum_j |W_{c,j}|, for random integers.

    ``weights`` are what head h gives to keys that are no tap and to the taps 1, ..., N, not normalised.
    """
    draw, failures = random.Random(13), []
    image = [{pixel: draw.randint(-9, 9) for pixel in pixels(IMAGE)} for _ in range(CHANNELS)]
    kernel = [[draw.randint(-9, 9) for _ in range(TAPS)] for _ in range(CHANNELS)]
    layer = list(zip(kernel, image, strict=True))
    allowed = bound * sum(sum(map(abs, W)) * (max(x.values()) - min(x.values())) for W, x in layer)
    for q in pixels((IMAGE[0] - KERNEL[0] + 1, IMAGE[1] - KERNEL[1] + 1)):
        targets = [(q[0] + m, q[1] + n) for m, n in pixels(KERNEL)]
        wanted = sum(W[j] * x[target] for W, x in layer for j, target in enumerate(targets))
        error = sum(_read(weights, solve(W), x, targets) for W, x in layer) - wanted
        if not abs(error) <= allowed:  # of intervals: not certainly
            failures.append(f"query {q}: off by {error}, allowed {allowed}")
    return failures


def _read(weights: list[list[Any]], V: list[Any], x: dict[Pixel, int], targets: list[Pixel]) -> Any:
    """sum_h V_h sum_k p_h(k) x_k for one channel."""
    others = [pixel for pixel in x if pixel not in targets]
    total = 0
    for value, (away, *row) in zip(V, weights, strict=True):
        seen = sum(w * x[target] for w, target in zip(row, targets, strict=True)) + away * sum(x[k] for k in others)
        total += value * seen / (sum(row) + away * len(others))
    return total


@claim(
    status=Status.INSTANCES,
    scope=r"The taps are numbered $1, \dots, N$, with a head for each; every target is a key (`head-assembly`), and "
    r"$n$ keys are no tap. $t \ge 1$, and the encoding depends on it. The product $V_h$ of a head's value and "
    r"output projections is any matrix: $D_h \ge \min(C_{in}, C_{out})$. Exact arithmetic.",
    source="new; the theorem's $D_p \\ge 3$ is for heads that sit on one tap each",
    tests=("proofs/claims/test_sharper.py: test_nine_heads_with_one_dimension_come_near_a_convolution",),
    is_lemma=True,
)
def one_dimension_in_the_limit() -> Checks:
    r"""Heads that mix taps need an encoding of dimension 1 only, in the limit.

    Let $r_\delta = {=ENCODING}$ where $\delta$ is the offset of tap $j$ and $r_\delta = -1$ elsewhere,
    $v_h = {=HEAD_VECTOR}$, and $V_h = {=SEEN} (W_h - W_{h-1})$ with $W_0 = 0$. Then

    ```math
    |\mathrm{Attention} - \mathrm{Conv}|_o \le {=2 * HEADS} {=MISS}
    \sum_c \operatorname{osc}_c \sum_j |W_{o,c,j}| \to 0 \qquad (t \to \infty) .
    ```

    The values are at most ${=2 * HEADS}$ times as large as the kernel. The price is scores from ${=1 / T}$ to
    ${=LARGEST}$ in size.

    **Proof.** With $j = 0$ for keys that are no tap, $v_h r_j = {=-(T**EXPONENT)}$. This is between $-1/t$ and 0 for
    the taps $j \ge h$, and at most $-t$ for all other keys: head $h$ sees the taps $h, \dots, N$, nearly alike. Since
    $e^{-x} \ge 1 - x$, of the uniform distribution on these $m = {=SEEN}$ taps it lacks

    ```math
    \sum_{j \ge h} \Bigl(\frac{1}{m} - p_h(j)\Bigr)^+
    \le m \Bigl(\frac{1}{m} - \frac{1 - 1/t}{m + (N + n) e^{-t}}\Bigr) \le {=MISS} ,
    ```

    and puts as much elsewhere, so what it reads differs from the mean over these taps by at most $\operatorname{osc}$
    times this. With uniform distributions the layer is the convolution: tap $j$ is seen by the heads $1, \dots, j$,
    and $\sum_{h \le j} V_h / {=SEEN} = \sum_{h \le j} (W_h - W_{h-1}) = W_j$. Head by head, the errors are weighted
    with $\sum_h |V_h| \le \sum_h {=SEEN} (|W_h| + |W_{h-1}|) \le {=2 * HEADS} \sum_j |W_j|$. $\square$

    With $v_h = h$, $r_j = \ln j$ and $r = -B$ elsewhere the scores are small. The limits $j^h / \sum_i i^h$ of the
    probabilities form a Vandermonde matrix with scaled rows, so values $V_h$ with $\sum_h p_h(j) V_h = W_j$ exist;
    other keys get at most $n e^{-B}$ of a head's attention, and the error falls like $e^{-B}$. But for nine taps these
    values are up to ${=MILLIONS}$ million times as large as the kernel. With $D_p = 0$ all keys score alike, and no
    kernel with two different taps comes near.
    """
    layer = "3x3 taps, two channels of 4x5 pixels, random integers"
    yield Check("head $h$ sees the taps $h, ..., N$: its scores", score_failures)
    yield Check("what the seen taps lack", miss_failures)
    yield Check("taps that are seen alike read the kernel", telescoping_failures, f"up to {max(COUNTS)} taps")
    yield Check("the layer is within its bound", scales_failures, f"{layer}, {len(SCALES)} values of $t$")
    yield Check("so is that with $v_h = h$", betas_failures, f"the same, {len(BETAS)} values of $B$")
    yield Check("the values of $v_h = h$, for nine taps", growth_failures)
