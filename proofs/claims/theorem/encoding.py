"""Justifies ``convert/heads/encoding.py``: the inner product with the quadratic encoding is a distance to the centre.

Three claims: the identity for D_p = 3; the softmax does not see constants; the draft's D_p = 6, eq. (9)-(11), is the
same encoding with its constants kept and its squares apart.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.formula import dot, lines, relate, scaled, show
from ..common.checks import constant, derivation, follows, identities, identity
from ..common.notation import SCORE, Delta_1, Delta_2, alpha, delta_1, delta_2

ENCODING = (delta_1**2 + delta_2**2, delta_1, delta_2)
HEAD_VECTOR = (-alpha, 2 * alpha * Delta_1, 2 * alpha * Delta_2)
DISTANCE = (delta_1 - Delta_1) ** 2 + (delta_2 - Delta_2) ** 2
CONSTANT = alpha * (Delta_1**2 + Delta_2**2)

# The draft's symbols: Delta_x, Delta_y is the relative position there, and (x_h, y_h) the target.
x_h, y_h, Delta_x, Delta_y = sp.symbols("x_h y_h Delta_x Delta_y", real=True)
DRAFT_ENCODING = (Delta_x, Delta_y, Delta_x**2, Delta_y**2, sp.Integer(1), sp.Integer(1))
DRAFT_HEAD_VECTOR = tuple(
    -alpha * entry for entry in (-2 * x_h, -2 * y_h, sp.Integer(1), sp.Integer(1), x_h**2, y_h**2)
)
DRAFT_CONSTANT = -alpha * (x_h**2 + y_h**2)
DRAFT_SCORE = -alpha * ((Delta_x - x_h) ** 2 + (Delta_y - y_h) ** 2)
REDUCTION = sp.Matrix([[0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]])

index, other = sp.symbols("k j", integer=True)
shift = sp.Symbol("c", real=True)
scores = sp.Function("s", real=True)
SHIFTED = scores(other) + shift

DRAFT_PRODUCT = Formula(r"R_{\Delta}^{\top} t_h", "R_Delta . t_h")
_WITH_THREE = Formula(rf"{DRAFT_PRODUCT.latex} = v \cdot r + c_h", f"{DRAFT_PRODUCT.text} = v . r + c_h")
_SMALL, _LOST = Formula("r", "r"), Formula("c_h", "c_h")


def claims() -> list[Claim]:
    """The claims of this file."""
    return [encoding_identity(), softmax_shift(), draft_encoding()]


def encoding_identity(
    *,
    encoding: tuple[Any, ...] = ENCODING,
    head_vector: tuple[Any, ...] = HEAD_VECTOR,
    distance: Any = DISTANCE,
    rest: Any = CONSTANT,
) -> Claim:
    """v_h . r_delta is minus alpha times the squared distance to the centre, plus a constant."""
    product = dot(encoding, head_vector)
    chain = [
        (product, "The inner product, written out."),
        (sp.collect(sp.expand(product), alpha), "$alpha$ is a factor of every term."),
        (-alpha * distance + rest, "Both squares completed; the constant takes back what that adds."),
    ]
    r, v = Formula(r"r_{\delta}", "r_delta"), Formula("v_h", "v_h")
    vectors = lines(relate(r, encoding), relate(v, scaled(-alpha, head_vector)))
    return Claim(
        name="encoding-identity",
        title="The quadratic encoding scores by distance, with three components",
        statement=lines(vectors, relate(SCORE, -alpha * distance + rest)),
        assumptions=(
            "$alpha$, $delta$ and $Delta$ are any real numbers: the identity needs neither integers nor a sign of "
            "$alpha$.",
            "For attention to look at $q + Delta$, $alpha > 0$: then the smallest distance has the highest score.",
        ),
        steps=(
            *derivation(SCORE, chain),
            Step(show(rest), "This is the same for all keys, so the softmax ignores it: `softmax-shift`."),
        ),
        checks=(
            identity(
                "the inner product is $-alpha$ times the squared distance plus the constant", product, chain[-1][0]
            ),
            follows("every step follows from the one before it", chain),
            constant("the constant does not depend on the key", rest, (delta_1, delta_2)),
        ),
        justifies=(
            "conv2attn.convert.heads.encoding.relative_encoding",
            "conv2attn.convert.heads.encoding.head_vectors",
            "conv2attn.convert.heads.encoding.positional_scores",
        ),
        source="draft, eq. (9)-(11), without its constants",
        tests=(
            "proofs.claims.test_encoding.test_the_proved_expressions_are_what_the_layer_computes",
            "convert.heads.test_encoding.test_the_score_is_minus_alpha_times_the_squared_distance_up_to_a_constant",
        ),
        formal=("Encoding.encoding_identity",),
    )


def softmax_shift(*, shifted: Any = SHIFTED) -> Claim:
    """Softmax probabilities do not change when the same number is added to all scores."""
    after, before = (Formula(f"p_k({name})", f"p_k({name})") for name in ("s + c", "s"))
    quotient = Formula(
        r"\frac{e^{s_k + c}}{\sum_{j} e^{s_j + c}} = \frac{e^{c}\, e^{s_k}}{e^{c} \sum_{j} e^{s_j}}",
        "exp(s_k + c) / sum_j exp(s_j + c) = exp(c) exp(s_k) / (exp(c) sum_j exp(s_j))",
    )
    total = Formula(r"e^{c} \sum_{j} e^{s_j} > 0", "exp(c) sum_j exp(s_j) > 0")

    def summands() -> dict[str, tuple[Any, Any]]:
        left = sp.exp(shifted.subs(other, index)) * sp.exp(scores(other))
        return {"the summands of key j": (left, sp.exp(scores(index)) * sp.exp(shifted))}

    def positive() -> list[str]:
        return [] if sp.exp(shifted).is_positive else [f"{sp.exp(shifted)} is not known to be positive"]

    return Claim(
        name="softmax-shift",
        title="Softmax ignores constants",
        statement=relate(after, before),
        assumptions=(
            "$s_1, ..., s_n$ are the real scores of one query, for any number $n$ of keys.",
            "$c$ is real and the same for all keys; it may differ between queries and heads.",
        ),
        steps=(
            Step(relate(after, quotient), "The definition, and $exp(s + c) = exp(c) exp(s)$."),
            Step(total, "Every summand is positive, so one may divide by the sum."),
            Step(relate(after, before), "$exp(c)$ is a factor of numerator and denominator."),
        ),
        checks=(
            identities("$exp(s_k + c) sum_j exp(s_j) = exp(s_k) sum_j exp(s_j + c)$, summand by summand", summands),
            Check("the summands of the denominator are positive", Kind.SYMBOLIC, positive),
        ),
        justifies=("conv2attn.convert.heads.encoding.positional_scores",),
        source='draft, section 3.1, "Simplification"',
        tests=("proofs.claims.test_encoding.test_the_true_claims_are_proved",),
        formal=("Softmax.softmax_shift",),
    )


def draft_encoding(
    *,
    encoding: tuple[Any, ...] = DRAFT_ENCODING,
    head_vector: tuple[Any, ...] = DRAFT_HEAD_VECTOR,
    draft_score: Any = DRAFT_SCORE,
    reduction: Any = REDUCTION,
    lost: Any = DRAFT_CONSTANT,
) -> Claim:
    """The draft's D_p = 6 gives the same attention as D_p = 3."""
    product = dot(encoding, head_vector)
    reduced = tuple(entry.subs({delta_1: Delta_x, delta_2: Delta_y}) for entry in ENCODING)
    reduced_vector = tuple(entry.subs({Delta_1: x_h, Delta_2: y_h}) for entry in HEAD_VECTOR)
    mirrored = -alpha * DISTANCE.subs({delta_1: -Delta_x, delta_2: -Delta_y, Delta_1: -x_h, Delta_2: -y_h})
    merged = {
        f"component {number}": (found, entry)
        for number, (found, entry) in enumerate(zip(reduction * sp.Matrix(encoding), reduced, strict=True), start=1)
    }
    return Claim(
        name="encoding-draft",
        title="The draft's encoding with six components, and its reduction to three",
        statement=lines(
            relate(DRAFT_PRODUCT, draft_score),
            _WITH_THREE,
            relate(_SMALL, reduced),
            relate(Formula("v", "v"), scaled(-alpha, reduced_vector)),
            relate(_LOST, lost),
        ),
        assumptions=(
            "$alpha$, $Delta_x$, $Delta_y$, $x_h$ and $y_h$ are real; for the maximum, $alpha > 0$.",
            "$Delta_x$ and $Delta_y$ are the draft's relative position here, $x_h$ and $y_h$ its target.",
        ),
        steps=_draft_steps(encoding, head_vector, reduced, (draft_score, lost)),
        checks=(
            identity("eq. (11) is the inner product of eq. (9) and (10)", product, draft_score),
            identity("the score at the target is 0", draft_score.subs({Delta_x: x_h, Delta_y: y_h}), sp.Integer(0)),
            Check("no score is above 0 if $alpha > 0$", Kind.SYMBOLIC, lambda: _above_zero(draft_score)),
            identities("a linear map $M$ takes the six components to the three", lambda: merged),
            identity("the scores differ by $c_h$", product, dot(reduced, reduced_vector) + lost),
            constant("$c_h$ does not depend on the key", lost, (Delta_x, Delta_y)),
            identity(
                "at $-delta$, with the centre $-(x_h, y_h)$, it is the score of `encoding-identity`", product, mirrored
            ),
        ),
        justifies=(
            "conv2attn.convert.heads.encoding.relative_encoding",
            "conv2attn.convert.heads.encoding.head_vectors",
        ),
        source="draft, eq. (9)-(11)",
        tests=("proofs.claims.test_encoding.test_the_drafts_scores_are_the_layers_up_to_a_constant_for_each_head",),
    )


def _draft_steps(
    encoding: tuple[Any, ...], head_vector: tuple[Any, ...], reduced: tuple[Any, ...], terms: tuple[Any, Any]
) -> tuple[Step, ...]:
    draft_score, lost = terms
    return (
        Step(relate(Formula(r"R_{\Delta}", "R_Delta"), encoding), "Eq. (9)."),
        Step(relate(Formula("t_h", "t_h"), scaled(-alpha, head_vector)), "Eq. (10)."),
        Step(relate(DRAFT_PRODUCT, draft_score), "Eq. (11): at most 0, and 0 only at the target."),
        Step(
            relate(_SMALL, Formula(r"M R_{\Delta}", "M R_Delta"), reduced),
            "The squares have the same coefficient, so that one component carries their sum; the ones are dropped.",
        ),
        Step(
            lines(_WITH_THREE, relate(_LOST, lost)),
            "What is dropped is the same for all keys, so the softmax ignores it: `softmax-shift`.",
        ),
        Step(
            Formula(r"p_i - p_j = -\delta", "p_i - p_j = -delta"),
            "The draft subtracts the key from the query. So its head looks at $p_i - (x_h, y_h)$, and its target "
            "$(x_h, y_h)$ is the centre $-(x_h, y_h)$ of this document, with the same score.",
        ),
    )


def _above_zero(expression: Any) -> list[str]:
    """Returns a failure unless the expression is at most 0 for every positive alpha."""
    at_positive = expression.subs(alpha, sp.Symbol("alpha", positive=True))
    return [] if at_positive.is_nonpositive else [f"{show(expression).text} is not known to be at most 0"]
