"""Why an encoding of dimension one has room for two targets only, if each head sits on a tap of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sympy

from ...prover.checks import Expr, all_equal, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import dot

DIMENSIONS = (1, 2, 3)

_V, _R = sympy.symbols("v r", real=True)
_A, _B = sympy.symbols("a b", positive=True)
COMBINATION = (_B * (_R - _A) + _A * (_R + _B)) / (_A + _B)
LEADS = _B * (_V * _R - _V * (_R - _A)) + _A * (_V * _R - _V * (_R + _B))


def hull_failures(*, dimensions: Iterable[int] = DIMENSIONS, weights: Sequence[Expr] | None = None) -> Failures:
    """Fails unless sum_k lambda_k (v . r - v . r_k) = 0 for r = sum_k lambda_k r_k with sum_k lambda_k = 1."""
    free = sympy.Symbol("lambda", nonnegative=True)
    for dimension in dimensions:
        v, r1, r2 = (sympy.symbols(f"{name}1:{dimension + 1}", real=True) for name in ("v", "r", "s"))
        lambdas = (free, 1 - free) if weights is None else weights
        inner = tuple(lambdas[0] * a + lambdas[1] * b for a, b in zip(r1, r2, strict=True))
        certificate = sum(weight * (dot(v, inner) - dot(v, r)) for weight, r in zip(lambdas, (r1, r2), strict=True))
        yield from unequal(certificate, 0, f"D_p = {dimension}: the weighted sum of leads over r_1 and r_2")


@claim(
    status=Status.COQ,
    scope=r"Scores $v_h \cdot r_\delta$ with $D_p = 1$, any encoding and any head vectors; one query and finitely many "
    r"keys. Heads that mix taps are another matter.",
    coq=("Dimension.v: one_dimension_has_two_targets, one_dimension_does_not",),
    tests=("proofs/claims/test_false_variants.py",),
)
def one_dimension_two_targets(*, lead: int = 0) -> Checks:
    r"""With an encoding of dimension 1, at most two heads each sit on a tap of their own.

    Of three heads with different targets, not all can give their target more than half of their attention. So no
    kernel with three taps is expressed with $D_p = 1$ in the way of Theorem 1, one head for each tap.

    **Proof.** A head that gives its target more than half of its attention has its only highest score there. Of three
    different numbers $r - a < r < r + b$ the middle one is a mean, $r = {=COMBINATION}$, so for every $v$ its weighted
    leads over the other two cancel:

    ```math
    {=LEADS} = 0 .
    ```

    Hence $v r$ is never the only highest score. (Equal numbers tie.) $\square$

    For any $D_p$ there is a $v$ with $v \cdot r_\Delta > v \cdot r_\delta$ for all $\delta \ne \Delta$ if and only if
    $r_\Delta$ is not in the convex hull of the other $r_\delta$. If it is, $r_\Delta = \sum_k \lambda_k r_k$, the
    leads cancel as above, $\sum_k \lambda_k (v \cdot r_\Delta - v \cdot r_k) = 0$; if it is not, a hyperplane
    separates it from this compact set. Dimension 2 has room for all targets, since the points $(t^2, t)$ lie on a
    parabola. (This paragraph is argued, not in Coq.)
    """
    yield Check("a point between two others never leads both", hull_failures, "$D_p = 1, 2, 3$")
    middle = {"the combination": (COMBINATION, _R), "its leads, weighted": (LEADS, lead)}
    yield all_equal("of three numbers the middle one never leads", middle)
