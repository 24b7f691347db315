"""Separability: the softmax over a grid of a row term plus a column term is an outer product of two softmaxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, unequal
from ..common.small_convolutions import pixels

GRIDS = ((1, 1), (1, 3), (2, 2), (3, 2), (4, 3))


def separability_failures(
    grids: Iterable[tuple[int, int]] = GRIDS, *, score: Callable[[Expr, Expr], Expr] = lambda a, b: a + b
) -> list[str]:
    """Whether softmax(score(a_i, b_j)) over a grid is softmax(a) times softmax(b), for symbolic a and b."""
    failures = []
    for rows, columns in grids:
        a, b = sympy.symbols(f"a0:{rows}", real=True), sympy.symbols(f"b0:{columns}", real=True)
        weights = {(i, j): _exponential(score(a[i], b[j])) for i, j in pixels((rows, columns))}
        row_total, column_total = sympy.Add(*map(_exponential, a)), sympy.Add(*map(_exponential, b))
        total = sympy.Add(*weights.values())
        for (i, j), weight in weights.items():  # cross-multiplied: no denominator is 0
            claimed = _exponential(a[i]) * _exponential(b[j]) * total
            failures += unequal(weight * row_total * column_total, claimed, f"{rows}x{columns}, key ({i}, {j})")
    return failures[:3]


def _exponential(expression: Expr) -> Expr:
    return sympy.expand(sympy.exp(sympy.expand(expression)))


def split_failures(*, row: Expr | None = None, cross: Expr = 0) -> list[str]:
    """Whether -alpha |delta - Delta|^2 is a row term plus a column term, for real centres."""
    alpha, d1, d2, D1, D2 = sympy.symbols("alpha delta1 delta2 Delta1 Delta2", real=True)
    score = -alpha * ((d1 - D1) ** 2 + (d2 - D2) ** 2) + cross * d1 * d2
    row = -alpha * (d1 - D1) ** 2 if row is None else row
    column = -alpha * (d2 - D2) ** 2
    return unequal(score, row + column, "the score") + unequal(sympy.diff(score, d1, d2), 0, "its mixed derivative")


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_separability()]


def _separability() -> Claim:
    return Claim(
        name="separable-softmax",
        title="A softmax of row plus column terms is an outer product",
        statement=Formula(
            r"\operatorname{softmax}_{(i, j)}(a_i + b_j) = \operatorname{softmax}_i(a)\, \operatorname{softmax}_j(b)",
            "softmax over the grid of a_i + b_j = softmax(a)_i softmax(b)_j",
        ),
        assumptions=("The keys are a full grid: every row with every column.",),
        steps=(
            Step(
                Formula(
                    r"\sum_{i, j} e^{a_i + b_j} = \sum_i e^{a_i} \sum_j e^{b_j}",
                    "sum_{i,j} exp(a_i + b_j) = sum_i exp(a_i) sum_j exp(b_j)",
                ),
                "$exp(a + b) = exp(a) exp(b)$, and the distributive law over the product of the two index sets.",
            ),
            Step(
                Formula(
                    r"\frac{e^{a_i + b_j}}{\sum_{k, l} e^{a_k + b_l}}"
                    r" = \frac{e^{a_i}}{\sum_k e^{a_k}} \cdot \frac{e^{b_j}}{\sum_l e^{b_l}}",
                    "exp(a_i + b_j) / sum_{k,l} exp(a_k + b_l) = (exp(a_i) / sum_k exp(a_k)) (exp(b_j) / sum_l "
                    "exp(b_l))",
                ),
                "Divide. Every sum of exponentials is positive.",
            ),
            Step(
                Formula(
                    r"-\alpha |\delta - \Delta|^2 = -\alpha (\delta_1 - \Delta_1)^2 - \alpha (\delta_2 - \Delta_2)^2",
                    "-alpha |delta - Delta|^2 = -alpha (delta_1 - Delta_1)^2 - alpha (delta_2 - Delta_2)^2",
                ),
                "The quadratic score is of this form for every $alpha$ and every real centre; so are learned row and "
                "column scores and sinusoids per axis. A score is of this form iff its mixed differences vanish.",
            ),
        ),
        checks=(
            Check("the quadratic score is a row term plus a column term", Kind.SYMBOLIC, split_failures),
            Check(
                "the softmax factors, for any real $a$ and $b$",
                Kind.INSTANCES,
                separability_failures,
                cases=tuple(f"{rows}x{columns} keys" for rows, columns in GRIDS),
            ),
        ),
        justifies=(
            "conv2attn.convert.engines.separable.SeparableEngine.attend",
            "conv2attn.convert.engines.factored.FactoredEngine.attend",
        ),
        tests=("proofs.claims.test_factorisation.test_the_probabilities_of_the_code_are_those_of_the_proof",),
        formal=("Factorisation.separable_softmax",),
    )
