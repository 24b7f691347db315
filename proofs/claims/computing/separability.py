"""Separability: the softmax over a grid of a sum of terms, one an axis, is the product of the axes' softmaxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step

GRIDS = ((4,), (1, 1), (1, 3), (2, 2), (3, 2), (4, 3), (2, 2, 2), (2, 1, 3))
AXES = (1, 2, 3)


def separability_failures(
    grids: Iterable[tuple[int, ...]] = GRIDS, *, score: Callable[..., Expr] = lambda *terms: sum(terms)
) -> list[str]:
    """Whether softmax(score(a_i, b_j, ...)) over a grid is softmax(a) softmax(b) ..., for symbolic a, b, ..."""
    failures = []
    for size in grids:
        terms = [sympy.symbols(f"a{axis}_:{length}", real=True) for axis, length in enumerate(size)]
        weights = {
            key: _exponential(score(*(part[k] for part, k in zip(terms, key, strict=True))))
            for key in product(*map(range, size))
        }
        totals = sympy.Mul(*(sympy.Add(*map(_exponential, part)) for part in terms))
        total = sympy.Add(*weights.values())
        for key, weight in weights.items():  # cross-multiplied: no denominator is 0
            alone = sympy.Mul(*(_exponential(part[k]) for part, k in zip(terms, key, strict=True)))
            failures += unequal(weight * totals, alone * total, f"{_by(size)}, key {key}")
    return failures[:3]


def _by(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


def _exponential(expression: Expr) -> Expr:
    return sympy.expand(sympy.exp(sympy.expand(expression)))


def split_failures(*, first: Expr | None = None, cross: Expr = 0) -> list[str]:
    """Whether -alpha |delta - Delta|^2 is a sum of terms, one an axis, for real centres."""
    alpha, failures = sympy.Symbol("alpha", real=True), []
    for axes in AXES:
        delta, center = (sympy.symbols(f"{name}1:{axes + 1}", real=True) for name in ("delta", "Delta"))
        terms = [-alpha * (d - c) ** 2 for d, c in zip(delta, center, strict=True)]
        score = -alpha * sum((d - c) ** 2 for d, c in zip(delta, center, strict=True)) + cross * sympy.Mul(*delta)
        failures += unequal(score, sum(terms[1:], terms[0] if first is None else first), f"n = {axes}: the score")
        for one, other in combinations(delta, 2):
            failures += unequal(sympy.diff(score, one, other), 0, f"n = {axes}: its mixed derivative")
    return failures


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_separability()]


def _separability() -> Claim:
    return Claim(
        name="separable-softmax",
        title="A softmax of a sum of terms, one an axis, is a product of softmaxes",
        statement=Formula(
            r"\operatorname{softmax}_{k}\bigl(a^{(1)}_{k_1} + \dots + a^{(n)}_{k_n}\bigr) = \prod_{i=1}^{n}"
            r" \operatorname{softmax}_{k_i}(a^{(i)})",
            "softmax over the grid of a1_{k1} + ... + an_{kn} = softmax(a1)_{k1} ... softmax(an)_{kn}; for images, n = "
            "2: softmax of a_i + b_j = softmax(a)_i softmax(b)_j",
        ),
        assumptions=("The keys are a full grid of $n$ axes: for images every row with every column.",),
        steps=(
            Step(
                Formula(
                    r"\sum_{k} e^{a^{(1)}_{k_1} + \dots + a^{(n)}_{k_n}} = \prod_{i=1}^{n} \sum_{l} e^{a^{(i)}_l}",
                    "sum_k exp(a1_{k1} + ... + an_{kn}) = (sum_l exp(a1_l)) ... (sum_l exp(an_l))",
                ),
                "$exp(a + b) = exp(a) exp(b)$, and the distributive law over the product of the index sets.",
            ),
            Step(
                Formula(
                    r"\frac{e^{a^{(1)}_{k_1} + \dots + a^{(n)}_{k_n}}}{\sum_l e^{a^{(1)}_{l_1} + \dots +"
                    r" a^{(n)}_{l_n}}} = \prod_{i=1}^{n} \frac{e^{a^{(i)}_{k_i}}}{\sum_l e^{a^{(i)}_l}}",
                    "exp(a1_{k1} + ... + an_{kn}) / sum_l exp(a1_{l1} + ... + an_{ln}) = product over the axes i of "
                    "exp(ai_{ki}) / sum_l exp(ai_l)",
                ),
                "Divide. Every sum of exponentials is positive.",
            ),
            Step(
                Formula(
                    r"-\alpha |\delta - \Delta|^2 = \sum_{i=1}^{n} -\alpha (\delta_i - \Delta_i)^2",
                    "-alpha |delta - Delta|^2 = sum_i -alpha (delta_i - Delta_i)^2",
                ),
                "The quadratic score is of this form for every $alpha$ and every real centre; so are learned row and "
                "column scores and sinusoids per axis. A score is of this form iff its mixed differences vanish.",
            ),
        ),
        checks=(
            Check(
                "the quadratic score is a sum of terms, one an axis",
                Kind.INSTANCES,
                split_failures,
                cases=tuple(f"$n = {axes}$, for all $alpha$, positions and centres" for axes in AXES),
            ),
            Check(
                "the softmax factors, for any real terms",
                Kind.INSTANCES,
                separability_failures,
                cases=tuple(f"{_by(size)} keys" for size in GRIDS),
            ),
        ),
        justifies=(
            "conv2attn.convert.engines.separable.SeparableEngine.attend",
            "conv2attn.convert.engines.factored.FactoredEngine.attend",
        ),
        tests=("proofs.claims.test_factorisation.test_the_probabilities_of_the_code_are_those_of_the_proof",),
        formal=("Factorisation.separable_softmax",),
    )
