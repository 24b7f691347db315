"""Separability: the softmax over a grid of a sum of terms, one an axis, is the product of the axes' softmaxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import squared_distance
from ..common.small import points

GRIDS = ((4,), (1, 1), (1, 3), (2, 2), (3, 2), (4, 3), (2, 2, 2), (2, 1, 3))
AXES = (1, 2, 3)


def separability_failures(
    grids: Iterable[tuple[int, ...]] = GRIDS, *, score: Callable[..., Expr] = lambda *terms: sum(terms)
) -> Failures:
    """Fails unless softmax(score(a_i, b_j, ...)) over a grid is softmax(a) softmax(b) ..., for symbolic a, b, ..."""
    for size in grids:
        terms = [sympy.symbols(f"a{axis}_:{length}", real=True) for axis, length in enumerate(size)]
        weights = {
            key: _exponential(score(*(part[k] for part, k in zip(terms, key, strict=True)))) for key in points(size)
        }
        totals = sympy.Mul(*(sympy.Add(*map(_exponential, part)) for part in terms))
        total = sympy.Add(*weights.values())
        for key, weight in weights.items():  # cross-multiplied: no denominator is 0
            alone = sympy.Mul(*(_exponential(part[k]) for part, k in zip(terms, key, strict=True)))
            yield from unequal(weight * totals, alone * total, f"keys {size}, key {key}")


def _exponential(expression: Expr) -> Expr:
    return sympy.expand(sympy.exp(sympy.expand(expression)))


def split_failures(*, first: Expr | None = None, cross: Expr = 0) -> Failures:
    """Fails unless -alpha |delta - Delta|^2 is a sum of terms, one an axis, for real centres."""
    alpha = sympy.Symbol("alpha", real=True)
    for axes in AXES:
        delta, center = (sympy.symbols(f"{name}1:{axes + 1}", real=True) for name in ("delta", "Delta"))
        terms = [-alpha * (d - c) ** 2 for d, c in zip(delta, center, strict=True)]
        score = -alpha * squared_distance(delta, center) + cross * sympy.Mul(*delta)
        yield from unequal(score, sum(terms[1:], terms[0] if first is None else first), f"n = {axes}: the score")
        for one, other in combinations(delta, 2):
            yield from unequal(sympy.diff(score, one, other), 0, f"n = {axes}: its mixed derivative")


@claim(
    status=Status.INSTANCES,
    scope="The keys are a full grid of $n$ axes: for images, every row with every column. Coq has the statement for "
    "images.",
    justifies=(
        "convert/engines/separable.py: SeparableEngine.attend",
        "convert/engines/factored.py: FactoredEngine.attend",
    ),
    coq=("Factorisation.v: separable_softmax",),
    tests=("proofs/claims/test_factorisation.py",),
    is_lemma=True,
)
def separable_softmax() -> Checks:
    r"""A softmax of a sum of terms, one an axis, is a product of softmaxes.

    For any real $a^{(1)}, \dots, a^{(n)}$,

    ```math
    \operatorname{softmax}_k \Bigl( \sum_{i=1}^n a^{(i)}_{k_i} \Bigr)
    = \prod_{i=1}^n \operatorname{softmax}_{k_i} (a^{(i)}) ,
    ```

    because the exponential of a sum is a product, and by the distributive law so is the positive sum over the grid,
    $\prod_i \sum_l e^{a^{(i)}_l}$. The quadratic score
    $-\alpha |\delta - \Delta|^2 = \sum_i -\alpha (\delta_i - \Delta_i)^2$ is such a sum for every $\alpha$ and every
    real centre, and so are learned row and column scores and sinusoids for each axis. A score is such a sum if and
    only if its mixed differences vanish.
    """
    yield Check(
        r"the quadratic score is a sum of terms, one an axis, for all $\alpha$, positions and centres",
        split_failures,
        f"$n = {', '.join(map(str, AXES))}$",
    )
    yield Check("the softmax factors, for any real terms", separability_failures, f"{len(GRIDS)} grids of 1 to 3 axes")
