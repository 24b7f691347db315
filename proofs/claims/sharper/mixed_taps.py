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

from ...prover.decide import Expr, has_negative_coefficient, not_nonnegative, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill
from ..common.lattice import iv
from ..common.small_convolutions import Pixel, pixels
from .head_dimension import exact

HEADS, HEAD, TAP = sympy.symbols("N h j", integer=True, positive=True)
T, OTHERS = sympy.symbols("t n", positive=True)  # how far apart the scales are; keys that are no tap
ENCODING, HEAD_VECTOR = -(T ** (-2 * TAP)), T ** (2 * HEAD - 1)  # r at tap j, where j = 0 is no tap; v of head h
EXPONENT = 2 * (HEAD - TAP) - 1  # v_h r_j = -t^EXPONENT
SEEN = HEADS - HEAD + 1  # the taps h, ..., N
MISS = 1 / T + (HEADS + OTHERS) * sympy.exp(-T)

COUNTS = (1, 2, 4, 9)
SCALES = (40, 10**4, 10**8)
BETAS = (Fraction(1, 10**6), Fraction(1, 10**12))
KERNEL, IMAGE, CHANNELS = (3, 3), (4, 5), 2
GROWTH = 8_900_000  # of the values of nine heads with v_h = h, rounded up


def seen_taps(taps: int, head: int) -> int:
    """N - h + 1."""
    return taps - head + 1


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


def values(kernel: Sequence[Any], *, seen: Callable[[int, int], int] = seen_taps) -> list[Any]:
    """V_h = (N - h + 1) (W_h - W_{h-1}) with W_0 = 0, for h = 1, ..., N."""
    before = [0 * kernel[0], *kernel[:-1]]
    return [seen(len(kernel), h) * (W - V) for h, (W, V) in enumerate(zip(kernel, before, strict=True), start=1)]


def telescoping_failures(
    counts: Iterable[int] = COUNTS,
    *,
    seen: Callable[[int, int], int] = seen_taps,
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
    return (
        []
        if Fraction(99, 100) * growth <= found <= growth
        else [f"{taps} taps: values of {float(found):.4g} times the kernel"]
    )


def scales_failures(
    scales: Iterable[int] = SCALES,
    *,
    gap: int = 2,
    factor: Fraction = Fraction(1),
) -> list[str]:
    """Whether the layer of the statement is within its bound, for a random convolution, in interval arithmetic."""
    failures, count, other = [], len(pixels(KERNEL)), len(pixels(IMAGE)) - len(pixels(KERNEL))
    for t in map(iv.mpf, scales):
        weights = [[iv.exp(-(t ** (2 * h - 1 - gap * j))) for j in range(count + 1)] for h in range(1, count + 1)]
        bound = 2 * count * (1 / t + (count + other) * iv.exp(-t)) * factor.numerator / factor.denominator
        for error, scale in _errors(weights, values):
            if not abs(error).b <= (bound * scale).a:
                failures.append(f"t = {t.mid}: off by {error.mid}, allowed {(bound * scale).mid}")
    return failures[:5]


def betas_failures(betas: Iterable[Fraction] = BETAS, *, factor: Fraction = Fraction(1)) -> list[str]:
    """Whether v_h = h with solved values errs by at most n beta growth N sum |W| osc, in fractions; beta = exp(-B)."""
    failures, count, other = [], len(pixels(KERNEL)), len(pixels(IMAGE)) - len(pixels(KERNEL))
    solved = solved_values(count)
    for beta in betas:
        weights = [[beta**h, *row] for h, row in enumerate(vandermonde(count), start=1)]
        bound = other * beta * GROWTH * count * factor
        for error, scale in _errors(weights, lambda W: [sum(a * w for a, w in zip(r, W, strict=True)) for r in solved]):
            if not abs(error) <= bound * scale:
                failures.append(f"beta = {float(beta)}: off by {float(error)}, allowed {float(bound * scale)}")
    return failures[:5]


def _errors(weights: list[list[Any]], solve: Callable[[Sequence[int]], list[Any]]) -> Iterable[tuple[Any, int]]:
    """Attention minus convolution at each query, and sum_c osc_c sum_j |W_{c,j}|, for random integers.

    ``weights`` are what head h gives to keys that are no tap and to the taps 1, ..., N, not normalised.
    """
    draw, taps, keys = random.Random(13), pixels(KERNEL), pixels(IMAGE)
    image = [{pixel: draw.randint(-9, 9) for pixel in keys} for _ in range(CHANNELS)]
    kernel = [[draw.randint(-9, 9) for _ in taps] for _ in range(CHANNELS)]
    scale = sum(sum(map(abs, W)) * (max(x.values()) - min(x.values())) for W, x in zip(kernel, image, strict=True))
    for q in pixels((IMAGE[0] - KERNEL[0] + 1, IMAGE[1] - KERNEL[1] + 1)):
        targets = [(q[0] + m, q[1] + n) for m, n in taps]
        yield (
            sum(_read(weights, solve(W), x, targets) for W, x in zip(kernel, image, strict=True))
            - sum(W[j] * x[target] for W, x in zip(kernel, image, strict=True) for j, target in enumerate(targets)),
            scale,
        )


def _read(weights: list[list[Any]], V: list[Any], x: dict[Pixel, int], targets: list[Pixel]) -> Any:
    """sum_h V_h sum_k p_h(k) x_k for one channel."""
    others = [pixel for pixel in x if pixel not in targets]
    total = 0
    for value, (away, *row) in zip(V, weights, strict=True):
        seen = sum(w * x[target] for w, target in zip(row, targets, strict=True)) + away * sum(x[k] for k in others)
        total += value * seen / (sum(row) + away * len(others))
    return total


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_mixed()]


_PARTS = {
    "encoding": ENCODING,
    "head": HEAD_VECTOR,
    "seen": SEEN,
    "miss": MISS,
    "growth": 2 * HEADS,
    "score": -(T**EXPONENT),
    "range": 2 * HEADS - 1,
    "million": sympy.Float(GROWTH / 10**6, 2),
}


def _mixed() -> Claim:
    return Claim(
        name="one-dimension-in-the-limit",
        title="Heads that mix taps need an encoding of dimension 1 only, in the limit",
        statement=fill(
            r"\begin{gathered} r_j = $encoding \text{ at tap } j = 1, \dots, N,\ r = -1 \text{ elsewhere},\quad v_h ="
            r" $head,\quad V_h = \left($seen\right) (W_h - W_{h-1}),\ W_0 = 0 \\ |\operatorname{Attention} -"
            r" \operatorname{Conv}|_o \le $growth \Bigl($miss\Bigr) \sum_c \operatorname{osc}_c \sum_j |W_{o,c,j}|"
            r" \xrightarrow{t \to \infty} 0 \end{gathered}",
            "With D_p = 1, r_j = $encoding at tap j = 1, ..., N and r = -1 elsewhere, v_h = $head and value "
            "projections V_h = ($seen) (W_h - W_{h-1}), W_0 = 0: |Attention - Conv|_o <= $growth ($miss) sum_c osc_c "
            "sum_j |W_{o,c,j}|, which tends to 0 as t -> infinity. The values are at most $growth times as large as "
            "the kernel; the price is scores from 1/t to t^($range). With v_h = h and r_j = ln j, where -B is r "
            "elsewhere, the scores are small, and the values solve a Vandermonde system: the error falls like exp(-B), "
            "but for nine taps the values are up to $million million times as large as the kernel.",
            **_PARTS,
        ),
        assumptions=(
            "Exact arithmetic; $t >= 1$. The taps are numbered $1, ..., N$, $N$ heads, one for each; $n$ keys are no "
            "tap.",
            "$V_h = W_val W_out$ of head $h$ is free: $D_h >= min(C_in, C_out)$. The encoding depends on $t$.",
            "Every target is a key, as it is in the padded grid (claim `head-assembly`).",
        ),
        steps=_steps(),
        checks=(
            Check("scores: head $h$ sees the taps $h, ..., N$", Kind.SYMBOLIC, score_failures),
            Check("what the seen taps lack is at most $1/t + (N + n) exp(-t)$", Kind.SYMBOLIC, miss_failures),
            Check(
                "taps that are seen alike read the kernel, with values at most $2 N$ times as large",
                Kind.INSTANCES,
                telescoping_failures,
                cases=tuple(f"{count} taps, a symbol each" for count in COUNTS),
            ),
            Check(
                "the layer is within its bound, in interval arithmetic",
                Kind.INSTANCES,
                scales_failures,
                cases=tuple(f"3x3 kernel, two channels of 4x5 pixels, random integers, $t = {t}$" for t in SCALES),
            ),
            Check(
                "$v_h = h$ and $r_j = ln j$: the error, in fractions",
                Kind.INSTANCES,
                betas_failures,
                cases=tuple(f"the same layer, $exp(-B) = {beta}$" for beta in BETAS),
            ),
            Check("the values of $v_h = h$, for nine taps", Kind.EXACT, growth_failures),
        ),
        source="new; the theorem's $D_p >= 3$ is for heads that sit on one tap each",
        tests=("proofs.claims.test_sharper.test_nine_heads_with_one_dimension_come_near_a_convolution",),
    )


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            fill(r"v_h r_j = $score", "v_h r_j = $score", **_PARTS),
            "With $j = 0$ for keys that are no tap. For the taps $j >= h$ the score is between $-1/t$ and 0; for all "
            "other keys it is at most $-t$.",
        ),
        Step(
            fill(
                r"\sum_{j \ge h} \Bigl(\frac{1}{m} - p_h(j)\Bigr)^+ \le m \Bigl(\frac{1}{m} - \frac{1 - 1/t}{m + (N"
                r" + n) e^{-t}}\Bigr) \le $miss,\quad m = $seen",
                "sum_{j >= h} (1/m - p_h(j))^+ <= m (1/m - (1 - 1/t) / (m + (N + n) exp(-t))) <= $miss, m = $seen",
                **_PARTS,
            ),
            "$exp(-x) >= 1 - x$. Of the uniform distribution on the taps $h, ..., N$ head $h$ lacks so much; it puts "
            "as much elsewhere. So what it reads differs from their mean by at most $osc$ times this.",
        ),
        Step(
            Formula(
                r"\sum_{h \le j} \frac{V_h}{N - h + 1} = \sum_{h \le j} (W_h - W_{h-1}) = W_j",
                "sum_{h <= j} V_h / (N - h + 1) = sum_{h <= j} (W_h - W_{h-1}) = W_j",
            ),
            "Tap $j$ is seen by the heads $1, ..., j$: with uniform distributions the layer is the convolution.",
        ),
        Step(
            fill(
                r"\sum_h |V_h| \le \sum_h \left($seen\right) \bigl(|W_h| + |W_{h-1}|\bigr) \le $growth \sum_j |W_j|",
                "sum_h |V_h| <= sum_h ($seen) (|W_h| + |W_{h-1}|) <= $growth sum_j |W_j|",
                **_PARTS,
            ),
            "Each head's error is weighted with its values.",
        ),
        Step(
            Formula(
                r"p_h(j) \to \frac{e^{h r_j}}{\sum_i e^{h r_i}},\quad \det \bigl(z_j^h\bigr)_{h,j} = \prod_j z_j"
                r" \prod_{i < j} (z_j - z_i),\quad z_j = e^{r_j}",
                "p_h(j) -> exp(h r_j) / sum_i exp(h r_i), det (z_j^h) = prod_j z_j prod_{i<j} (z_j - z_i), z_j = "
                "exp(r_j)",
            ),
            "The second construction: for different $z_j$ the probabilities of the taps form an invertible matrix, a "
            "Vandermonde matrix with scaled rows; $sum_h p_h(j) V_h = W_j$ has a solution. Other keys get at most "
            "$n exp(-B)$ of a head's attention.",
        ),
        Step(
            Formula(
                r"D_p = 0:\quad p_h(k) = \frac{1}{N + n}",
                "D_p = 0: p_h(k) = 1 / (N + n)",
            ),
            "Without an encoding all scores are equal and all heads alike: no kernel with two different taps.",
        ),
    )
