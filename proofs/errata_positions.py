"""Errata of the draft's introduction and section 3: scores, heads and positions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import sympy

from conv2attn.proofs.assembly import one_hot
from conv2attn.proofs.claim import Formula, Kind
from conv2attn.proofs.decide import Expr, unequal
from conv2attn.proofs.erratum import Erratum
from conv2attn.proofs.head_count import mixed_heads
from conv2attn.proofs.head_dimension import rank

SOBEL = ((1,), (0,), (-1,), (2,), (0,), (-2,), (1,), (0,), (-1,))  # 3 x 3 taps, one channel to one channel


def four_terms(values: dict[str, Any]) -> dict[str, Expr]:
    """Terms (a) to (d) of eq. (7)."""
    E_i, E_j, R, u, v, W_q, W_E, W_R = (values[name] for name in ("E_i", "E_j", "R", "u", "v", "W_q", "W_E", "W_R"))
    query = W_q * E_i
    terms = {"a": query.T * W_E * E_j, "b": query.T * W_R * R, "c": u.T * W_E * E_j, "d": v.T * W_R * R}
    return {name: sympy.expand(term[0, 0]) for name, term in terms.items()}


def zeroed_failures(zeroed: Collection[str]) -> list[str]:
    """Whether these parameters at zero leave term (d) alone, and whole."""
    vectors = {name: sympy.Matrix(2, 1, sympy.symbols(f"{name}:2")) for name in ("E_i", "E_j", "R", "u", "v")}
    matrices = {name: sympy.Matrix(2, 2, sympy.symbols(f"{name}:2:2")) for name in ("W_q", "W_E", "W_R")}
    before = four_terms({**vectors, **matrices})
    after = four_terms({**vectors, **matrices, **{name: sympy.zeros(2, 2) for name in zeroed}})
    wanted = {"a": 0, "b": 0, "c": 0, "d": before["d"]}
    return [failure for name, term in wanted.items() for failure in unequal(after[name], term, f"term ({name})")]


def orientation_failures(delta: Callable[[int, int], int]) -> list[str]:
    """Whether heads at the taps of eq. (1) give the sum of eq. (1), on a row of 5 pixels with K = 3."""
    X, W, i = sympy.symbols("x:5"), dict(zip((-1, 0, 1), sympy.symbols("w_left w_middle w_right"), strict=True)), 2
    attention = sympy.Integer(0)
    for m, weight in W.items():
        probabilities = one_hot([-((delta(i, j) - m) ** 2) for j in range(5)])
        attention += weight * sum(p * x for p, x in zip(probabilities, X, strict=True))
    return unequal(attention, sum(weight * X[i + m] for m, weight in W.items()), "attention minus convolution")


def absolute_failures(suffices: bool) -> list[str]:
    """Whether it is so that absolute encodings (|p|^2, p, 1) give the relative scores up to a constant per query."""
    alpha, k1, k2, q1, q2, D1, D2 = sympy.symbols("alpha k1 k2 q1 q2 Delta1 Delta2", real=True)
    key = sympy.Matrix([k1**2 + k2**2, k1, k2, 1])
    query = sympy.Matrix([q1**2 + q2**2, q1, q2, 1])
    bilinear = alpha * sympy.Matrix([[0, 0, 0, -1], [0, 2, 0, 2 * D1], [0, 0, 2, 2 * D2], [0, 0, 0, 0]])
    relative = -alpha * ((k1 - q1 - D1) ** 2 + (k2 - q2 - D2) ** 2)
    rest = sympy.expand((key.T * bilinear * query)[0, 0] - relative)
    found = not rest.has(k1, k2)
    return [] if found == suffices else [f"absolute minus relative score is {rest}; free of the key: {found}"]


def needed_heads_failures(needed: int) -> list[str]:
    """Whether the Sobel kernel needs so many heads: as many as are built exactly, and one does not do.

    Its unfolded kernel is one column, which one head would have to be a multiple of: not with both signs.
    """
    built = mixed_heads(SOBEL)[0].shape[1]
    both_signs = min(SOBEL) < (0,) < max(SOBEL)
    lowest = rank(SOBEL) + int(both_signs)
    return [] if lowest == needed == built else [f"Sobel: {built} heads do, {lowest} are needed; {needed} claimed"]


def entries() -> list[Erratum]:
    """The entries, in the order of the text."""
    return [_relative(), _nine_heads(), _zeroed(), _orientation()]


def _relative() -> Erratum:
    return Erratum(
        name="relative",
        title="Positions need not be relative",
        where='draft, introduction: "(i) positional encoding must be relative"',
        printed=Formula(r"\text{the positional encoding must be relative}", "the positional encoding must be relative"),
        corrected=Formula(
            r"(|k|^2, k, 1)\, M\, (|q|^2, q, 1)^\top = -\alpha |k - q - \Delta|^2 + \alpha |q + \Delta|^2",
            "(|k|^2, k, 1) M (|q|^2, q, 1)^T = -alpha |k - q - Delta|^2 + alpha |q + Delta|^2 for a matrix M",
        ),
        reason="Absolute encodings with second-order terms have the same scores, up to a constant per query.",
        consequence="Relative positions are convenient, not necessary.",
        holds=absolute_failures,
        as_printed=False,
        as_corrected=True,
    )


def _nine_heads() -> Erratum:
    return Erratum(
        name="nine-heads",
        title="A 3 x 3 kernel does not always need nine heads",
        where="draft, section 3, before eq. (8)",
        printed=Formula(
            r"3 \times 3 \text{ kernel requires } 9 \text{ attention heads}",
            "a 3 x 3 kernel requires 9 attention"
            r" heads",
        ),
        corrected=Formula(
            r"\operatorname{rank} U \le N_h \le \operatorname{rank} U + 1",
            "between rank U and rank U + 1 heads"
            r" suffice",
        ),
        reason="It holds for kernels with C_in C_out >= 9 in general position, and if every head looks at one pixel. A "
        "head that looks at several does more: two are enough for any kernel of one channel.",
        consequence="See the claims head-count and zero-taps.",
        holds=needed_heads_failures,
        as_printed=9,
        as_corrected=2,
        kind=Kind.INSTANCES,
        cases=("the Sobel kernel: rank 1, both signs, two heads",),
    )


def _zeroed() -> Erratum:
    return Erratum(
        name="zeroed-parameters",
        title="Which parameters vanish for term (d) alone",
        where="draft, before eq. (8)",
        printed=Formula(r"W_{k, E} = 0,\ W_{k, R} = 0", "W_{k,E} = 0 and W_{k,R} = 0"),
        corrected=Formula(r"W_q = 0,\ W_{k, E} = 0", "W_q = 0 and W_{k,E} = 0"),
        reason="Term (d) is v^T W_{k,R} R: W_{k,R} = 0 removes it with the others.",
        consequence="W_{k,R} stays, and may be the identity.",
        holds=zeroed_failures,
        as_printed=("W_E", "W_R"),
        as_corrected=("W_q", "W_E"),
        kind=Kind.INSTANCES,
        cases=("all dimensions 2, symbolic entries",),
    )


def _orientation() -> Erratum:
    return Erratum(
        name="orientation",
        title="Relative to the query, not to the key",
        where="draft, after eq. (8) and (11), against its eq. (1) and the article's delta = k - q",
        printed=Formula(r"\Delta = p_i - p_j", "Delta = p_i - p_j, query minus key"),
        corrected=Formula(r"\Delta = p_j - p_i", "Delta = p_j - p_i, key minus query"),
        reason="With a head at each (m, n) of eq. (1) it attends to p_i - (m, n): the kernel is mirrored.",
        consequence="delta = k - q, as in the article. Or keep the sign and put the heads at -(m, n).",
        holds=orientation_failures,
        as_printed=lambda i, j: i - j,
        as_corrected=lambda i, j: j - i,
        kind=Kind.INSTANCES,
        cases=("a row of 5 pixels, K = 3, symbolic pixels and weights",),
    )
