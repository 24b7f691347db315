"""Any number of axes: an n-D convolution is a self-attention layer with D_p = n + 1.

It justifies what ``convert/heads/encoding.py`` computes for the layers of one, two and three axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.formula import dot, lines, relate, scaled, show
from ..common.checks import identity, inequalities
from ..common.notation import SCORE, alpha

DIMENSIONS = (1, 2, 3, 4, 5)


def coordinates(name: str, dimension: int) -> tuple[sp.Symbol, ...]:
    """name_1, ..., name_n."""
    return tuple(sp.Symbol(f"{name}_{axis}", real=True) for axis in range(1, dimension + 1))


def encoding(delta: tuple[Any, ...]) -> tuple[Any, ...]:
    """r_delta = (|delta|^2, delta_1, ..., delta_n)."""
    return (sum(entry**2 for entry in delta), *delta)


def head_vector(center: tuple[Any, ...]) -> tuple[Any, ...]:
    """v = -alpha (1, -2 Delta_1, ..., -2 Delta_n)."""
    return (-alpha, *(2 * alpha * entry for entry in center))


def claimed_score(delta: tuple[Any, ...], center: tuple[Any, ...]) -> Any:
    """-alpha |delta - Delta|^2 + alpha |Delta|^2."""
    distance = sum((a - b) ** 2 for a, b in zip(delta, center, strict=True))
    return -alpha * distance + alpha * sum(entry**2 for entry in center)


Vector = Callable[[tuple[Any, ...]], tuple[Any, ...]]
Score = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]

t, T = sp.symbols("t T", real=True)


def claims() -> list[Claim]:
    """The claims of this file."""
    return [dimension()]


def dimension(*, encoding: Vector = encoding, head_vector: Vector = head_vector, score: Score = claimed_score) -> Claim:
    """n + 1 components are enough for n-D convolutions."""
    one_axis = dot(encoding((t,)), head_vector((T,)))
    cases = tuple(f"$n = {n}$" for n in DIMENSIONS)
    return Claim(
        name="any-dimension",
        title="For n-D convolutions, $n + 1$ components are enough",
        statement=lines(
            Formula(
                r"r_{\delta} = (|\delta|^2, \delta_1, \dots, \delta_n),\quad "
                r"v_h = -\alpha (1, -2 \Delta_1, \dots, -2 \Delta_n)",
                "r_delta = (|delta|^2, delta_1, ..., delta_n), v_h = -alpha (1, -2 Delta_1, ..., -2 Delta_n)",
            ),
            Formula(
                rf"{SCORE.latex} = -\alpha |\delta - \Delta|^2 + \alpha |\Delta|^2",
                f"{SCORE.text} = -alpha |delta - Delta|^2 + alpha |Delta|^2",
            ),
        ),
        assumptions=(
            "$delta$ and $Delta$ are in $R^n$, for any $n >= 1$; $alpha$ is real, and positive for a maximum.",
        ),
        steps=(*_steps(), *(_written_out(n, encoding, head_vector, score) for n in (1, 3))),
        checks=(
            identity("for one axis, the inner product is the score", one_axis, score((t,), (T,))),
            Check(
                "the identity in $n$ dimensions, with $n + 1$ components",
                Kind.INSTANCES,
                lambda: _false_in(encoding, head_vector, score),
                cases=cases,
            ),
            Check(
                "one more axis adds the score of that axis",
                Kind.INSTANCES,
                lambda: _other_increments(score, one_axis),
                cases=cases,
            ),
        ),
        justifies=(
            "conv2attn.convert.heads.encoding.relative_encoding",
            "conv2attn.convert.heads.encoding.head_vectors",
            "conv2attn.convert.heads.encoding.positional_scores",
        ),
        source=(
            "new; for text, $n = 1$, these are the two dimensions that the article's conclusion expects to be enough"
        ),
        tests=("proofs.claims.test_dimensions.test_the_codes_encoding_and_head_vector_are_the_proved_ones",),
        formal=(
            "Encoding.encoding_identity_n",
            "Encoding.unique_maximum_n",
        ),
    )


def _false_in(encoding: Vector, head_vector: Vector, score: Score) -> list[str]:
    """The dimensions in which the inner product is not the score, or has another number of components."""
    pairs, found = {}, []
    for n in DIMENSIONS:
        delta, center = coordinates("delta", n), coordinates("Delta", n)
        pairs[f"n = {n}"] = (dot(encoding(delta), head_vector(center)), score(delta, center))
        if len(encoding(delta)) != n + 1:
            found.append(f"n = {n}: {len(encoding(delta))} components, not {n + 1}")
    return inequalities(pairs) + found


def _other_increments(score: Score, one_axis: Any) -> list[str]:
    """The axes that add something else to the score than the inner product for one axis."""
    pairs = {}
    for n in DIMENSIONS:
        delta, center = coordinates("delta", n), coordinates("Delta", n)
        before = score(delta[:-1], center[:-1]) if n > 1 else sp.Integer(0)
        pairs[f"axis {n}"] = (score(delta, center) - before, one_axis.subs({t: delta[-1], T: center[-1]}))
    return inequalities(pairs)


def _written_out(n: int, encoding: Vector, head_vector: Vector, score: Score) -> Step:
    """The identity in n dimensions."""
    delta, center = coordinates("delta", n), coordinates("Delta", n)
    vector, encoded = scaled(-alpha, head_vector(center)), show(encoding(delta))
    product = Formula(
        rf"n = {n}:\quad {vector.latex} \cdot {encoded.latex}", f"n = {n}: {vector.text} . {encoded.text}"
    )
    return Step(relate(product, score(delta, center)), f"Written out for {n}-D convolutions.")


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                rf"{SCORE.latex} = \sum_{{i=1}}^{{n}} -\alpha (\delta_i^2 - 2 \Delta_i \delta_i)",
                f"{SCORE.text} = sum_i -alpha (delta_i^2 - 2 Delta_i delta_i)",
            ),
            "The square $|delta|^2$ is a sum over axes, and so is the rest of the inner product.",
        ),
        Step(
            relate(-alpha * (t**2 - 2 * T * t), -alpha * (t - T) ** 2 + alpha * T**2),
            "The square completed for one axis, with $t$ and $T$ for $delta_i$ and $Delta_i$.",
        ),
        Step(
            Formula(
                r"\sum_{i=1}^{n} \left(-\alpha (\delta_i - \Delta_i)^2 + \alpha \Delta_i^2\right)"
                r" = -\alpha |\delta - \Delta|^2 + \alpha |\Delta|^2",
                "sum_i (-alpha (delta_i - Delta_i)^2 + alpha Delta_i^2) = -alpha |delta - Delta|^2 + alpha |Delta|^2",
            ),
            "Summed over the axes, for any $n$. As in two dimensions the softmax ignores the last term, and the gap "
            "to the next key of $Z^n$ is at least $alpha$.",
        ),
    )
