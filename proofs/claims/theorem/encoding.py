"""Justifies ``convert/heads/encoding.py``: the inner product with the encoding is a distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from ...prover.checks import all_equal, chained, constant, equal, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import (
    Delta_1,
    Delta_2,
    Point,
    alpha,
    coordinates,
    delta_1,
    delta_2,
    dot,
    encoding,
    head_vector,
    squared_distance,
)

Vector = Callable[[Point], Point]

AXES = range(1, 6)
DELTA, CENTER = (delta_1, delta_2), (Delta_1, Delta_2)
t, T = sp.symbols("t T", real=True)


def shared(center: Point) -> Any:
    """alpha |Delta|^2: what the scores of all keys have in common."""
    return alpha * sp.Add(*(entry**2 for entry in center))


@claim(
    status=Status.COQ,
    scope=r"Real $\delta$, $\Delta$ and $\alpha$ along any number $n$ of axes; $\alpha > 0$ for a maximum.",
    source="draft, eq. (9)-(11), without its constants",
    justifies=("convert/heads/encoding.py: relative_encoding, head_vectors, positional_scores",),
    coq=("Encoding.v: encoding_identity_n, encoding_identity",),
    tests=("proofs/claims/test_encoding.py", "proofs/claims/test_dimensions.py"),
)
def encoding_identity(
    *,
    encoding: Vector = encoding,
    head_vector: Vector = head_vector,
    distance: Callable[[Point, Point], Any] = squared_distance,
    shared: Callable[[Point], Any] = shared,
) -> Checks:
    r"""The quadratic encoding scores by distance, with one component more than there are axes.

    The encoding $r_\delta = (|\delta|^2, \delta_1, \dots, \delta_n)$ of a relative position and the vector
    $v_h = -\alpha (1, -2 \Delta_1, \dots, -2 \Delta_n)$ of a head with centre $\Delta$ have the inner product

    ```math
    v_h \cdot r_\delta = -\alpha\, |\delta - \Delta|^2 + \alpha\, |\Delta|^2 .
    ```

    For images, $r_\delta = {=r}$ and $v_h = {=scaled(-alpha, v)}$.

    **Proof.** Along one axis, complete the square: ${=one_axis} = {=completed}$. Both sides of the identity are sums
    of such terms, one an axis. For images, written out,

    ```math
    \begin{aligned} v_h \cdot r_\delta &= {=product} \\ &= {=collected} \\ &= {=score(DELTA, CENTER)} . \end{aligned}
    ```

    The last term is the same for all keys, so the softmax ignores it (`softmax-shift`); for $\alpha > 0$ the key with
    $\delta = \Delta$ has the highest score.
    """

    def score(delta: Point, center: Point) -> Any:
        return -alpha * distance(delta, center) + shared(center)

    def pairs() -> dict[str, tuple[Any, Any]]:
        points = {n: (coordinates("delta", n), coordinates("Delta", n)) for n in AXES}
        return {f"n = {n}": (dot(encoding(d), head_vector(c)), score(d, c)) for n, (d, c) in points.items()}

    def increments() -> Failures:
        found = []
        for n in AXES:
            delta, center = coordinates("delta", n), coordinates("Delta", n)
            before = score(delta[:-1], center[:-1]) if n > 1 else sp.Integer(0)
            last = one_axis.subs({t: delta[-1], T: center[-1]})
            found += unequal(score(delta, center) - before, last, f"axis {n}")
        return found

    def lengths() -> Failures:
        counts = {n: len(encoding(coordinates("delta", n))) for n in AXES}
        return [f"n = {n}: {count} components, not {n + 1}" for n, count in counts.items() if count != n + 1]

    r, v = encoding(DELTA), head_vector(CENTER)
    product = dot(r, v)
    collected = sp.collect(sp.expand(product), alpha)
    one_axis, completed = dot(encoding((t,)), head_vector((T,))), score((t,), (T,))
    yield chained(
        "each line of the proof for images follows from the one before", product, collected, score(DELTA, CENTER)
    )
    yield equal("the square completed along one axis", one_axis, completed)
    yield all_equal("the identity for any real numbers", pairs, "$n = 1, ..., 5$")
    yield Check("one more axis adds the score of that axis", increments, "$n = 1, ..., 5$")
    yield Check("the encoding has $n + 1$ components", lengths, "$n = 1, ..., 5$")
    yield constant("the last term does not depend on the key", shared(CENTER), DELTA)


index, other = sp.symbols("k j", integer=True)
shift = sp.Symbol("c", real=True)
scores = sp.Function("s", real=True)
SHIFTED = scores(other) + shift


@claim(
    status=Status.COQ,
    scope="Any finite number of keys with real scores $s_k$; $c$ may differ between queries and heads.",
    source='draft, section 3.1, "Simplification"',
    justifies=("convert/heads/encoding.py: positional_scores",),
    coq=("Softmax.v: softmax_shift",),
    tests=("proofs/claims/test_false_variants.py",),
    is_lemma=True,
)
def softmax_shift(*, shifted: Any = SHIFTED) -> Checks:
    r"""Softmax ignores constants.

    Adding ${=shift}$ to every score multiplies numerator and denominator of each probability by
    ${=sp.exp(shift)} > 0$.
    """
    left, right = sp.exp(shifted.subs(other, index)) * sp.exp(scores(other)), sp.exp(scores(index)) * sp.exp(shifted)
    positive = sp.exp(shifted).is_positive
    yield equal("$e^{s_k + c} e^{s_j} = e^{s_k} e^{s_j + c}$ for every key $j$ of the denominator", left, right)
    yield Check("the summands of the denominator are positive", lambda: [] if positive else [f"{shifted} is not real"])


# The draft's symbols: Delta_x, Delta_y is the relative position there, and (x_h, y_h) the target.
x_h, y_h, Delta_x, Delta_y = sp.symbols("x_h y_h Delta_x Delta_y", real=True)
DRAFT_ENCODING = (Delta_x, Delta_y, Delta_x**2, Delta_y**2, sp.Integer(1), sp.Integer(1))
DRAFT_HEAD_VECTOR = tuple(
    -alpha * entry for entry in (-2 * x_h, -2 * y_h, sp.Integer(1), sp.Integer(1), x_h**2, y_h**2)
)
DRAFT_CONSTANT = -alpha * (x_h**2 + y_h**2)
DRAFT_SCORE = -alpha * ((Delta_x - x_h) ** 2 + (Delta_y - y_h) ** 2)
REDUCTION = sp.Matrix([[0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]])


@claim(
    status=Status.ALGEBRA,
    scope=r"Real numbers; $\alpha > 0$ for the maximum. $(\Delta_x, \Delta_y)$ is the draft's relative position.",
    source="draft, eq. (9)-(11)",
    justifies=("convert/heads/encoding.py: relative_encoding, head_vectors",),
    tests=("proofs/claims/test_encoding.py",),
    is_lemma=True,
)
def encoding_draft(
    *,
    encoding: Point = DRAFT_ENCODING,
    head_vector: Point = DRAFT_HEAD_VECTOR,
    draft_score: Any = DRAFT_SCORE,
    reduction: Any = REDUCTION,
    lost: Any = DRAFT_CONSTANT,
) -> Checks:
    r"""The draft's encoding with six components is this one with its constants kept and its squares apart.

    $R_\Delta = {=encoding}$ and $t_h = {=scaled(-alpha, head_vector)}$ have the inner product ${=draft_score}$, at
    most 0 and 0 only at the target. The squares have the same coefficient, so one component carries their sum;
    dropping the ones loses $c_h = {=lost}$, the same for all keys (`softmax-shift`). The draft subtracts the key from
    the query, so its target $(x_h, y_h)$ is the centre $-(x_h, y_h)$ here.
    """
    product = dot(encoding, head_vector)
    reduced = (Delta_x**2 + Delta_y**2, Delta_x, Delta_y)
    reduced_vector = (-alpha, 2 * alpha * x_h, 2 * alpha * y_h)
    mirrored = -alpha * squared_distance((-Delta_x, -Delta_y), (-x_h, -y_h))
    merged = {
        f"component {n}": pair for n, pair in enumerate(zip(reduction * sp.Matrix(encoding), reduced, strict=True))
    }
    highest = draft_score.subs(alpha, sp.Symbol("alpha", positive=True))
    yield equal("eq. (11) is the inner product of eq. (9) and (10)", product, draft_score)
    yield equal("the score at the target is 0", draft_score.subs({Delta_x: x_h, Delta_y: y_h}), sp.Integer(0))
    yield Check(
        "no score is above 0 if $\\alpha > 0$",
        lambda: [] if highest.is_nonpositive else [f"{draft_score} is not known to be at most 0"],
    )
    yield all_equal("a linear map takes the six components to the three", merged)
    yield equal("the scores differ by $c_h$", product, dot(reduced, reduced_vector) + lost)
    yield constant("$c_h$ does not depend on the key", lost, (Delta_x, Delta_y))
    yield equal("at $-\\delta$, with the centre $-(x_h, y_h)$, it is the score above", product, mirrored)
