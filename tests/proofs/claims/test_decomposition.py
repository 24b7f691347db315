"""The claims about the four terms reject false variants, and are about convert/heads/content.py."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp
import torch
from torch import Tensor

from conv2attn.convert.heads.content import ContentTerms
from conv2attn.convert.heads.encoding import positional_scores
from conv2attn.proofs.claims.theorem import decomposition, position_alone
from conv2attn.proofs.claims.theorem.decomposition import (
    ABSOLUTE,
    RELATIVE,
    E_i,
    E_j,
    R,
    U_j,
    W_k,
    W_kE,
    W_kR,
    W_q,
    u,
    v,
)
from tests.claims import integers

FALSE = {
    "absolute: sign": decomposition.decomposition_absolute(terms={**ABSOLUTE, "b": -ABSOLUTE["b"]}),
    "absolute: term missing": decomposition.decomposition_absolute(terms={name: ABSOLUTE[name] for name in "abd"}),
    "absolute: factor": decomposition.decomposition_absolute(terms={**ABSOLUTE, "c": 2 * ABSOLUTE["c"]}),
    "absolute: wrong position": decomposition.decomposition_absolute(
        terms={**ABSOLUTE, "b": U_j.T * W_q.T * W_k * U_j}
    ),
    "relative: u in place of v": decomposition.decomposition_relative(terms={**RELATIVE, "d": u.T * W_kR * R}),
    "relative: wrong key weight": decomposition.decomposition_relative(terms={**RELATIVE, "c": v.T * W_kE * E_j}),
    "relative: sign": decomposition.decomposition_relative(terms={**RELATIVE, "d": -RELATIVE["d"]}),
    "relative: term missing": decomposition.decomposition_relative(
        terms={**RELATIVE, "a": E_i.T * W_q.T * sp.ZeroMatrix(*W_kE.shape) * E_j}
    ),
    "what the draft sets to zero": position_alone.position_alone(vanishing=(frozenset({"W_kE", "W_kR"}),)),
    "four positions of one square": position_alone.position_alone(positions=((0, 0), (1, 0), (0, 1), (1, 1))),
    "a term without its query": position_alone.position_alone(terms={**RELATIVE, "b": u.T * W_kR * R}),
    "too few parameters": position_alone.position_alone(vanishing=(frozenset({"W_kE"}), frozenset({"W_q", "u"}))),
    "more than needed": position_alone.position_alone(
        vanishing=(frozenset({"W_q", "W_kE", "u"}), frozenset({"W_q", "u"}))
    ),
    "one way left out": position_alone.position_alone(vanishing=(frozenset({"W_q", "u"}),)),
}


def random_content(*, key_dim: int = 3, channels: int = 2) -> ContentTerms:
    """Content terms of two heads with integer parameters."""
    content = ContentTerms(2, channels, key_dim=key_dim, encoding_dim=3, dtype=torch.float64)
    with torch.no_grad():
        for parameter in content.parameters():
            parameter.copy_(integers(*parameter.shape))
    return content


def symbolic_score(content: ContentTerms, head: int, vector: Tensor, query: Tensor, key: Tensor, r: Tensor) -> int:
    """A_rel of the claim, with W_kR^T v replaced by the head's vector."""

    def column(values: Tensor) -> Any:
        return sp.ImmutableMatrix([int(entry) for entry in values])

    def matrix(values: Tensor) -> Any:
        return sp.ImmutableMatrix([[int(entry) for entry in row] for row in values.tolist()])

    sizes = {decomposition.d: len(query), decomposition.d_k: content.key_bias.shape[1], decomposition.D_p: 3}
    given = {E_i: column(query), E_j: column(key), R: column(r), W_q: matrix(content.query_weight[head])}
    given |= {W_kE: matrix(content.key_weight[head]), W_kR: matrix(content.position_weight[head])}
    given |= {u: column(content.key_bias[head])}
    total = vector @ r
    for name in "abc":
        term = RELATIVE[name].subs(sizes)
        total += int(term.subs({symbol.subs(sizes): matrix for symbol, matrix in given.items()}).doit()[0, 0])
    return int(total)


def test_the_content_terms_compute_the_proved_expressions() -> None:
    content, vectors = random_content(), integers(2, 3)
    queries, keys, encoding = integers(1, 2, 2), integers(1, 4, 2), integers(2, 4, 3)
    with torch.no_grad():
        scores = content.scores(queries, keys, encoding)[0] + positional_scores(encoding, vectors)
        for query, head, key in ((0, 0, 0), (1, 1, 3), (0, 1, 2), (1, 0, 1)):
            given = (queries[0, query], keys[0, key], encoding[query, key])
            assert scores[query, head, key].item() == symbolic_score(content, head, vectors[head], *given)


@pytest.mark.parametrize("names", position_alone.POSITION_ALONE, ids=lambda names: "-".join(sorted(names)))
def test_the_minimal_sets_turn_the_layers_content_off(names: frozenset[str]) -> None:
    content = random_content()
    parameters = {"W_q": content.query_weight, "W_kE": content.key_weight, "u": content.key_bias}
    with torch.no_grad():
        for name in names:
            parameters[name].zero_()
        assert not content.scores(integers(1, 2, 2), integers(1, 4, 2), integers(2, 4, 3)).any()
        content.key_weight.copy_(integers(*content.key_weight.shape))
        assert content.is_off() == (names == {"W_q", "u"})
