"""What an encoding needs for heads that sit on one tap each, and why one of dimension 1 has it for two of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill

DIMENSIONS = (1, 2, 3)

Vector = Sequence[Expr]

_V, _R = sympy.symbols("v r", real=True)
_A, _B = sympy.symbols("a b", positive=True)
COMBINATION = (_B * (_R - _A) + _A * (_R + _B)) / (_A + _B)
LEADS = _B * (_V * _R - _V * (_R - _A)) + _A * (_V * _R - _V * (_R + _B))


def dot(v: Vector, r: Vector) -> Expr:
    """v . r."""
    return sum((a * b for a, b in zip(v, r, strict=True)), sympy.Integer(0))


def hull_failures(*, dimensions: Iterable[int] = DIMENSIONS, weights: Vector | None = None) -> list[str]:
    """Whether sum_k lambda_k (v . r - v . r_k) = 0 for r = sum_k lambda_k r_k with sum_k lambda_k = 1."""
    failures = []
    free = sympy.Symbol("lambda", nonnegative=True)
    for dimension in dimensions:
        v, r1, r2 = (sympy.symbols(f"{name}1:{dimension + 1}", real=True) for name in ("v", "r", "s"))
        lambdas = (free, 1 - free) if weights is None else weights
        inner = [lambdas[0] * a + lambdas[1] * b for a, b in zip(r1, r2, strict=True)]
        certificate = sum(weight * (dot(v, inner) - dot(v, r)) for weight, r in zip(lambdas, (r1, r2), strict=True))
        failures += unequal(certificate, 0, f"D_p = {dimension}: the weighted sum of leads over r_1 and r_2")
    return failures


def between_failures(*, lead: int = 0) -> list[str]:
    """Whether the middle of three numbers r - a <= r <= r + b is such a combination, with lambda = b, a over a + b."""
    return unequal(COMBINATION, _R, "the combination") + unequal(LEADS, lead, "its leads, weighted")


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_one()]


def _one() -> Claim:
    return Claim(
        name="one-dimension-two-targets",
        title="Heads that each sit on one tap: dimension 1 has room for two",
        statement=Formula(
            r"\begin{gathered} \exists v:\ v \cdot r_\Delta > v \cdot r_\delta \text{ for all } \delta \ne \Delta \iff"
            r" r_\Delta \notin \operatorname{conv} \{ r_\delta : \delta \ne \Delta \}; \\ \text{for } D_p = 1 \text{"
            r" this"
            r" holds for at most two offsets } \Delta \end{gathered}",
            "A head vector v with v . r_Delta > v . r_delta for all other delta exists iff r_Delta is not in the "
            "convex hull of the other r_delta. For D_p = 1 that holds for at most two offsets: no kernel with three "
            "taps has a head that sits on each. Heads that mix taps are another matter (claim "
            "one-dimension-in-the-limit).",
        ),
        assumptions=(
            "The score is $v . r_delta$; $delta$ runs through the finitely many offsets of one query's keys.",
            "A head sits on a tap if it gives it more than half of its attention; its only maximum is then there.",
        ),
        steps=(
            Step(
                Formula(
                    r"r_\Delta = \sum_k \lambda_k r_k \implies \sum_k \lambda_k (v \cdot r_\Delta - v \cdot r_k) = 0",
                    "r_Delta = sum_k lambda_k r_k implies sum_k lambda_k (v . r_Delta - v . r_k) = 0",
                ),
                "$lambda_k >= 0$ and $sum_k lambda_k = 1$. Not all leads $v . r_Delta - v . r_k$ are positive: "
                "necessary.",
            ),
            Step(
                Formula(
                    r"r_\Delta \notin C \implies \exists v:\ v \cdot r_\Delta > \max_{c \in C} v \cdot c",
                    "r_Delta not in C implies there is v with v . r_Delta > max over c in C of v . c",
                ),
                "$C$, the convex hull of finitely many points, is compact: separating hyperplane. So it is sufficient.",
            ),
            Step(
                fill(
                    r"r - a \le r = $combination \le r + b:\quad $leads = 0",
                    "r - a <= r = $combination <= r + b: $leads = 0",
                    combination=COMBINATION,
                    leads=LEADS,
                ),
                "Of any three numbers one lies between the two others (equal ones tie), so it is never the only "
                "maximum: $v > 0$ picks the largest $r$, $v < 0$ the smallest. Dimension 2 has room: $(t, t^2)$ lie "
                "on a parabola.",
            ),
        ),
        checks=(
            Check(
                "a point between two others never leads both",
                Kind.INSTANCES,
                hull_failures,
                cases=tuple(f"$D_p = {dimension}$" for dimension in DIMENSIONS),
            ),
            Check("of three scalars the middle one never leads", Kind.SYMBOLIC, between_failures),
        ),
        source="new",
        tests=("proofs.claims.test_sharper.test_a_false_variant_is_rejected",),
        formal=(
            "Dimension.one_dimension_has_two_targets",
            "Dimension.one_dimension_does_not",
        ),
    )
