"""The claims about other dimensions and absolute positions reject false variants, and fit the layer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import sympy as sp
import torch
from torch import nn

from conv2attn.convert import SelfAttention2d
from conv2attn.convert.arguments import Size
from conv2attn.convert.heads.encoding import head_vectors, key_positions, relative_encoding
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.claims.common.scores import Delta_1, Delta_2, alpha, encoding, head_vector
from conv2attn.proofs.claims.common.small import Axis, Case, head_center, middle, query_position
from conv2attn.proofs.claims.theorem import absolute
from conv2attn.proofs.claims.theorem.absolute import KEY_WEIGHT, QUERY_CONSTANT, QUERY_WEIGHT
from conv2attn.proofs.claims.theorem.assembly import dimension_assembly
from conv2attn.proofs.prover.claim import Claim
from tests.claims import integers, value


def _centers(along: Callable[[Axis, int], int]) -> Claim:
    return dimension_assembly(center=lambda case, tap: case.along(along, tap))


def _queries(along: Callable[[Axis, int], int]) -> Claim:
    return dimension_assembly(query=lambda case, output: case.along(along, output))


FALSE = {
    "dilation forgotten": _centers(lambda axis, m: m - middle(axis.taps)),
    "centre off by one": _centers(lambda axis, m: axis.dilation * (m - middle(axis.taps)) + 1),
    "centre mirrored": _centers(lambda axis, m: axis.dilation * (middle(axis.taps) - m)),
    "centre from the first tap": _centers(lambda axis, m: axis.dilation * m),
    "query under the first tap": _queries(lambda axis, i: axis.stride * i),
    "middle tap without dilation": _queries(lambda axis, i: axis.stride * i + middle(axis.taps)),
    "absolute: sign": absolute.absolute_positions(query_weight=-QUERY_WEIGHT),
    "absolute: factor 2 missing": absolute.absolute_positions(
        query_weight=sp.diag(1, sp.Rational(1, 2), 1) * QUERY_WEIGHT
    ),
    "absolute: exponent": absolute.absolute_positions(key_weight=KEY_WEIGHT[[1, 1, 2], :]),
    "absolute: rows and columns swapped": absolute.absolute_positions(key_weight=KEY_WEIGHT[[0, 2, 1], :]),
    "absolute: centre left out": absolute.absolute_positions(query_weight=QUERY_WEIGHT.subs(Delta_1, 0)),
    "absolute: constant": absolute.absolute_positions(query_constant=QUERY_CONSTANT + alpha),
    "absolute: constant that depends on the key": absolute.absolute_positions(
        query_constant=QUERY_CONSTANT + absolute.k_1
    ),
}


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_the_codes_encoding_and_head_vector_are_the_proved_ones(dimension: int) -> None:
    delta, center = integers(1, dimension), integers(1, dimension)
    found = relative_encoding(delta)[0], head_vectors(torch.tensor([4.0]).double(), center)[0]
    proved = (
        encoding(tuple(delta[0].int().tolist())),
        head_vector(tuple(center[0].int().tolist())),
    )
    for ours, claimed in zip(found, proved, strict=True):
        assert ours.tolist() == [value(entry, alpha=4.0) for entry in claimed]


def test_the_codes_centres_and_queries_are_those_of_the_assembly() -> None:
    case = Case.sized((7, 9), (2, 3), stride=(2, 1), dilation=(3, 2))
    spec = ConvSpec(1, 1, kernel_size=(2, 3), stride=(2, 1), dilation=(3, 2))
    assert list(spec.tap_offsets) == [head_center(case, tap) for tap in case.taps]
    assert list(product(*spec.query_positions(Size(7, 9)))) == [query_position(case, output) for output in case.outputs]


def test_pytorchs_own_attention_with_appended_positions_attends_like_the_layer() -> None:
    spec = ConvSpec(1, 1, kernel_size=(2, 3), padding="same")
    layer, size = SelfAttention2d(spec, dtype=torch.float64), (3, 4)
    padded = spec.padded_size(Size(*size))
    positions = key_positions(padded, like=torch.zeros(1, dtype=torch.float64))
    appended = torch.cat([positions.square().sum(-1, keepdim=True), positions, torch.ones(len(positions), 1)], dim=-1)
    heads, width = spec.num_heads, 4
    vanilla = nn.MultiheadAttention(heads * width, heads, bias=False, batch_first=True, dtype=torch.float64)
    inputs = torch.zeros(len(positions), heads * width, dtype=torch.float64)
    inputs[:, :4] = appended
    weights = torch.zeros(2, heads, width, heads * width, dtype=torch.float64)
    for head, (row, column) in enumerate(spec.tap_offsets):
        strength = 2 * layer.alpha[head].item()  # PyTorch divides by sqrt(D_k) = 2
        numbers = QUERY_WEIGHT.subs({alpha: int(strength), Delta_1: row, Delta_2: column})
        weights[0, head, :3, :4] = torch.tensor(numbers.tolist(), dtype=torch.float64)
        weights[1, head, :3, :4] = torch.tensor(KEY_WEIGHT.tolist(), dtype=torch.float64)
    with torch.no_grad():
        vanilla.in_proj_weight[: 2 * heads * width] = weights.flatten(0, 2)
        _, maps = vanilla(inputs[None], inputs[None], inputs[None], average_attn_weights=False)
    rows, columns = spec.query_positions(Size(*size))
    queries = [r * padded.columns + c for r in rows for c in columns]
    assert torch.equal(maps[0][:, queries].unflatten(-1, padded), layer.attention_probabilities(size))
