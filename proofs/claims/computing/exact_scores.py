"""Justifies ``scores_are_exact`` in ``heads/encoding.py``: which scores floating point computes without rounding."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import sympy as sp

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import lines, relate, show
from .floating_point import FORMATS

LARGEST_SIDE = {"binary32": 2895, "binary64": 67_108_863}  # of a square key grid, for a 3 x 3 kernel

rows, columns, d_1, d_2, D_1, D_2 = sp.symbols("R C d_1 d_2 D_1 D_2", nonnegative=True)
LARGEST_INTEGER = rows**2 + columns**2 + 2 * (rows * D_1 + columns * D_2)


def claims() -> list[Claim]:
    """The claims of this file."""
    return [exact_scores()]


def exact_scores(
    *,
    largest: Any = LARGEST_INTEGER,
    sides: Mapping[str, int] = LARGEST_SIDE,
    exponent: int = 0,
) -> Claim:
    """Scores are computed without rounding as long as their integers fit into the significand.

    Args:
        largest: Bound on the integers.
        sides: Largest side of a square key grid for a 3 x 3 kernel.
        exponent: What is added to the precision p: integers up to 2^(p + exponent) are claimed to be exact.
    """
    bound = relate(Formula("B", "B"), largest)
    return Claim(
        name="exact-scores",
        title="With $alpha$ a power of two, the scores are computed without rounding",
        statement=lines(
            Formula(
                r"B \le 2^p \implies \mathrm{rd}(v_h \cdot r_{\delta}) = v_h \cdot r_{\delta}",
                "B <= 2^p implies rd(v_h . r_delta) = v_h . r_delta",
            ),
            bound,
        ),
        assumptions=(
            "$alpha = 2^a$ is a normal number, and $alpha B$ does not overflow.",
            "Queries, keys and centres have integer coordinates; $|delta_1| <= R$ and $|delta_2| <= C$ on a key grid "
            "of $(R + 1) x (C + 1)$ pixels; $D_1$ and $D_2$ are the largest $|Delta_1|$ and $|Delta_2|$.",
            "The three products are added one after the other, as `positional_scores` does.",
            "rd rounds to $p$ bits: $p = 24$ in single and $p = 53$ in double precision.",
        ),
        steps=_steps(largest),
        checks=(
            Check(
                "no partial sum exceeds $B$, for all signs of the coordinates", Kind.SYMBOLIC, lambda: _beyond(largest)
            ),
            Check(
                "integers up to $2^p$ fit into $p$ bits, and $2^p + 1$ does not",
                Kind.INSTANCES,
                lambda: _misfits(exponent),
                cases=(
                    "$p = 2, 3, ..., 10$: all integers up to $2^p + 1$",
                    "$p = 24$ and $p = 53$: $2^p - 1$, $2^p$, $2^p + 1$",
                ),
            ),
            Check(
                "for a $3 x 3$ kernel, the largest square key grid with $B <= 2^p$",
                Kind.INSTANCES,
                lambda: _wrong_sides(largest, sides, exponent),
                cases=tuple(f"{name}: ${side} x {side}$ pixels" for name, side in sides.items()),
            ),
        ),
        justifies=(
            "conv2attn.convert.heads.encoding.scores_are_exact",
            "conv2attn.convert.heads.regime.Regime.score_dtype",
        ),
        tests=("proofs.claims.test_floating_point.test_scores_on_the_largest_grid_are_exact_in_single_precision",),
        formal=(
            "Binary.integers_representable",
            "ExactScores.scores_without_rounding",
        ),
    )


def _steps(largest: Any) -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"\delta_1^2,\ \ \delta_1^2 + \delta_2^2,\ \ \delta_1^2 + \delta_2^2 - 2 \Delta_1 \delta_1,\ \ "
                r"\delta_1^2 + \delta_2^2 - 2 \Delta_1 \delta_1 - 2 \Delta_2 \delta_2",
                "delta_1^2, |delta|^2, |delta|^2 - 2 Delta_1 delta_1, "
                "|delta|^2 - 2 Delta_1 delta_1 - 2 Delta_2 delta_2",
            ),
            "Every product and every partial sum is one of these integers, or $2 Delta_i delta_i$; all but the first "
            "two times $-alpha$.",
        ),
        Step(
            Formula(rf"|m| \le {show(largest).latex} = B", f"|m| <= {show(largest).text} = B"),
            "The triangle inequality for each of these integers $m$.",
        ),
        Step(
            Formula(
                r"m \in \mathbb{Z},\ |m| \le 2^p \implies \mathrm{rd}(m) = m",
                "m an integer, |m| <= 2^p implies rd(m) = m",
            ),
            "Below $2^p$ it has at most $p$ bits, and $2^p$ itself has one; $2^p + 1$ is the first that does not fit.",
        ),
        Step(
            Formula(r"\mathrm{rd}(2^a m) = 2^a m", "rd(2^a m) = 2^a m"),
            "A power of two changes the exponent only. A result that is a floating-point number is not rounded.",
        ),
        Step(
            Formula(
                r"s_k - s_t = -\alpha |k - t|^2,\quad |k - t|^2 \le R^2 + C^2 \le B",
                "s_k - s_t = -alpha |k - t|^2, |k - t|^2 <= R^2 + C^2 <= B",
            ),
            "So the softmax's subtraction of the largest score is exact too, for a target $t$ on the key grid.",
        ),
    )


def _beyond(largest: Any) -> list[str]:
    """Partial sums that could exceed the bound.

    |delta_1| = d_1 and R = d_1 + (something not negative), and so on: then bound minus sum must be a polynomial
    without negative coefficients.
    """
    spare = {rows: d_1 + sp.Symbol("r", nonnegative=True), columns: d_2 + sp.Symbol("c", nonnegative=True)}
    found = []
    for first, second, sign in product((1, -1), repeat=3):
        squares, row, column = d_1**2 + d_2**2, 2 * first * D_1 * d_1, 2 * second * D_2 * d_2
        for integer in (d_1**2, squares, row, column, squares - row, squares - row - column):
            slack = sp.Poly(
                sp.expand(largest.subs(spare) - sign * integer),
                *spare[rows].free_symbols,
                *spare[columns].free_symbols,
                D_1,
                D_2,
            )
            if any(coefficient < 0 for coefficient in slack.coeffs()):
                spare_text = f"{show(largest).text} - ({show(sign * integer).text}) = {show(slack.as_expr()).text}"
                found.append(f"{spare_text} can be negative")
    return found


def _fits(integer: int, precision: int) -> bool:
    """Whether an integer is a number of this precision: its odd part has at most so many bits."""
    return integer == 0 or (integer // (integer & -integer)).bit_length() <= precision


def _misfits(exponent: int) -> list[str]:
    found = []
    for p in (*range(2, 11), 24, 53):
        limit = 2 ** (p + exponent)
        integers = range(limit + 1) if p <= 10 else (limit - 1, limit)
        found += [f"{m} <= 2^{p + exponent} does not fit into {p} bits" for m in integers if not _fits(m, p)]
        if _fits(limit + 1, p):
            found.append(f"{limit + 1} fits into {p} bits, so the limit is too low")
    return found


def _wrong_sides(largest: Any, sides: Mapping[str, int], exponent: int) -> list[str]:
    found = []
    for name, side in sides.items():
        limit = 2 ** (FORMATS[name].precision + exponent)
        here, further = (largest.subs({rows: n, columns: n, D_1: 2, D_2: 2}) for n in (side - 1, side))
        if not here <= limit < further:
            found.append(f"{name}, side {side}: B = {here}, one pixel more: {further}, limit {limit}")
    return found
