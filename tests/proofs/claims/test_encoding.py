"""The claims about the quadratic encoding reject false variants, and are about convert/heads/encoding.py."""

from __future__ import annotations

from typing import Any

import sympy as sp
import torch

from conv2attn.convert.heads.encoding import head_vectors, positional_scores, relative_encoding
from conv2attn.proofs.claims.common.scores import alpha, delta_1, dot, head_vector, squared_distance
from conv2attn.proofs.claims.common.scores import encoding as quadratic
from conv2attn.proofs.claims.theorem import encoding
from tests.claims import integers, value

R6, T6 = encoding.DRAFT_ENCODING, encoding.DRAFT_HEAD_VECTOR
V = head_vector

FALSE = {
    "sign of the head vector": encoding.encoding_identity(head_vector=lambda c: (alpha, *V(c)[1:])),
    "sign of one centre": encoding.encoding_identity(head_vector=lambda c: (*V(c)[:-1], -V(c)[-1])),
    "factor 2 missing": encoding.encoding_identity(head_vector=lambda c: (-alpha, *(alpha * entry for entry in c))),
    "exponent": encoding.encoding_identity(encoding=lambda d: (sum(x**3 for x in d), *d)),
    "square missing": encoding.encoding_identity(encoding=lambda d: (d[0] ** 2, *d)),
    "last axis left out": encoding.encoding_identity(encoding=lambda d: (sum(x**2 for x in d[:-1]), *d)),
    "rows and columns swapped": encoding.encoding_identity(encoding=lambda d: (quadratic(d)[0], *d[::-1])),
    "constant left out": encoding.encoding_identity(shared=lambda c: sp.Integer(0)),
    "constant that depends on the key": encoding.encoding_identity(
        distance=lambda d, c: squared_distance(d, c) + delta_1, shared=lambda c: encoding.shared(c) + alpha * delta_1
    ),
    "distance to the mirrored centre": encoding.encoding_identity(
        distance=lambda d, c: squared_distance(d, tuple(-entry for entry in c))
    ),
    "more components": encoding.encoding_identity(
        encoding=lambda d: (*quadratic(d), sp.Integer(1)), head_vector=lambda c: (*V(c), sp.Integer(0))
    ),
    "shift that depends on the key": encoding.softmax_shift(
        shifted=encoding.scores(encoding.other) + encoding.shift * encoding.other
    ),
    "factor instead of a shift": encoding.softmax_shift(shifted=2 * encoding.scores(encoding.other)),
    "complex shift": encoding.softmax_shift(shifted=encoding.scores(encoding.other) + sp.I * encoding.shift),
    "draft: exponent": encoding.encoding_draft(encoding=(*R6[:3], encoding.Delta_y, *R6[4:])),
    "draft: sign": encoding.encoding_draft(head_vector=(-T6[0], *T6[1:])),
    "draft: constant": encoding.encoding_draft(head_vector=(*T6[:5], 2 * T6[5])),
    "draft: sharpness": encoding.encoding_draft(draft_score=2 * encoding.DRAFT_SCORE),
    "draft: constant that depends on the key": encoding.encoding_draft(lost=encoding.DRAFT_CONSTANT + encoding.Delta_x),
    "draft: score that is not 0 at the target": encoding.encoding_draft(draft_score=encoding.DRAFT_SCORE - alpha),
    "draft: positive score": encoding.encoding_draft(
        head_vector=tuple(-entry for entry in T6), draft_score=-encoding.DRAFT_SCORE
    ),
    "draft: reduction that loses a square": encoding.encoding_draft(
        reduction=sp.Matrix([[0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]])
    ),
    "draft: reduction without its constant": encoding.encoding_draft(lost=sp.Integer(0)),
}


def test_the_proved_expressions_are_what_the_layer_computes() -> None:
    delta, centers, alphas = integers(5, 4, 2), integers(3, 2), 2 ** integers(3, largest=3)
    vectors, encoded = head_vectors(alphas, centers), relative_encoding(delta)
    r, v = quadratic(encoding.DELTA), V(encoding.CENTER)
    score = -alpha * squared_distance(encoding.DELTA, encoding.CENTER) + encoding.shared(encoding.CENTER)
    scores = positional_scores(encoded, vectors)
    for query, head, key in ((0, 0, 0), (1, 2, 3), (4, 1, 2), (2, 0, 1)):
        point: dict[str, Any] = dict(zip(("delta_1", "delta_2"), delta[query, key].tolist(), strict=True))
        point |= dict(zip(("Delta_1", "Delta_2"), centers[head].tolist(), strict=True)) | {"alpha": alphas[head].item()}
        assert encoded[query, key].tolist() == [value(entry, **point) for entry in r]
        assert vectors[head].tolist() == [value(entry, **point) for entry in v]
        assert scores[query, head, key].item() == value(score, **point)


def test_the_drafts_scores_are_the_layers_up_to_a_constant_for_each_head() -> None:
    offsets, targets = integers(1, 6, 2), integers(2, 2)
    scores = positional_scores(relative_encoding(-offsets), head_vectors(torch.tensor([2.0, 0.5]).double(), -targets))
    for head, strength in enumerate((2.0, 0.5)):
        x, y = targets[head].tolist()
        constants = {
            scores[0, head, key].item()
            - value(dot(R6, T6), alpha=strength, x_h=x, y_h=y, Delta_x=delta[0].item(), Delta_y=delta[1].item())
            for key, delta in enumerate(offsets[0])
        }
        assert constants == {value(-encoding.DRAFT_CONSTANT, alpha=strength, x_h=x, y_h=y)}
