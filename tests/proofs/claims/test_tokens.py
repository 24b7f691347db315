"""Heads of a vision transformer that look at taps: false variants are rejected; torch's layers keep the share."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from conv2attn.proofs.claims.other_encodings.tokens import token_heads, token_period
from conv2attn.proofs.prover.claim import Claim

FALSE: dict[str, Claim] = {
    "no channel of ones": token_heads(ones=0),
    "half of the channel of ones": token_heads(ones=-1),
    "no channel that is 0": token_heads(zero=0),
    "queries that are turned the other way": token_heads(turn=-1),
    "a token without a place that loses along one axis": token_heads(placeless=1),
    "the sum over one axis": token_heads(axes=1),
    "one channel less": token_heads(positions=1),
    "a period as long as the largest offset": token_period(criterion=lambda side, period: side - 1 <= period),
}
SIDES = (5, 7)


def waves(period: int, count: int = 3) -> Tensor:
    """w_f = 2 pi f / P, [count]."""
    return 2 * math.pi / period * torch.arange(1, count + 1, dtype=torch.float64)


def tokens(content: Tensor, w: Tensor) -> Tensor:
    """Tokens of a grid behind one without a place, [1 + rows * columns, channels]: waves, 1, 0, and their content."""
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in SIDES), indexing="ij")
    angles = torch.cat([axis.reshape(-1, 1) * w for axis in (rows, columns)], 1)
    found = torch.stack([angles.cos(), angles.sin()], -1).flatten(1)
    placed = torch.cat([found.new_zeros(1, found.shape[1]), found])
    return torch.cat([placed, torch.ones(len(placed), 1), torch.zeros(len(placed), 1), content], 1)


def share_at_taps(x: Tensor, w: Tensor, shift: tuple[int, int], beta: float) -> tuple[Tensor, Tensor]:
    """The attention that each query with a tap on the grid pays to it, behind ``nn.LayerNorm``; and the bound."""
    norm = nn.LayerNorm(x.shape[1], eps=0.0).double()
    with torch.no_grad():
        normed = norm(x)
    numbers = 4 * len(w) + 1
    read = beta * (normed[:, :numbers] - normed[:, numbers : numbers + 1])
    turn = torch.zeros(numbers, numbers, dtype=torch.float64)
    for place, (delta, wave) in enumerate(product(shift, w.tolist())):
        cos, sin, here = math.cos(wave * delta), math.sin(wave * delta), slice(2 * place, 2 * place + 2)
        turn[here, here] = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    turn[-1, -1] = -2 * len(w)
    probabilities = (read @ turn.T @ read.T / math.sqrt(numbers)).softmax(-1)
    deviations = x.std(1, correction=0)
    found, bounds = [], []
    for row, column in product(*map(range, SIDES)):
        target = row + shift[0], column + shift[1]
        if not (0 <= target[0] < SIDES[0] and 0 <= target[1] < SIDES[1]):
            continue
        query, key = (1 + r * SIDES[1] + c for r, c in ((row, column), target))
        strength = float(beta**2 / (math.sqrt(numbers) * deviations[query] * deviations.max()))
        sums = [
            sum(math.exp(-strength * float((1 - (w * (i - t)).cos()).sum())) for i in range(side))
            for side, t in zip(SIDES, target, strict=True)
        ]
        found.append(probabilities[query, key])
        bounds.append(1 / (sums[0] * sums[1] + math.exp(-2 * len(w) * strength)))
    return torch.stack(found), torch.tensor(bounds, dtype=torch.float64)


@pytest.mark.parametrize("size", [0.0, 0.3, 30.0])
@pytest.mark.parametrize("shift", [(0, 0), (-1, 1), (2, -3)])
def test_heads_of_a_transformer_block_keep_the_share_at_their_taps(shift: tuple[int, int], size: float) -> None:
    w = waves(16)
    generator = torch.Generator().manual_seed(3)
    content = size * (torch.randn(1 + math.prod(SIDES), 40, generator=generator, dtype=torch.float64) + 0.5)
    found, bounds = share_at_taps(tokens(content, w), w, shift, beta=4.0)
    slack = 1 + 2.0**-40  # of float64, whose scores err by some 2^-50 of their size
    assert bool((found * slack >= bounds).all())
    if size == 0.0:  # but for the token without a place all deviations are equal, and the bound is nearly reached
        assert float((found / bounds).max()) < 1.1


def test_a_period_that_wraps_gives_a_head_two_taps() -> None:
    w = waves(SIDES[1] - 1)
    content = torch.zeros(1 + math.prod(SIDES), 1, dtype=torch.float64)
    found, _ = share_at_taps(tokens(content, w), w, (0, 0), beta=40.0)
    assert float(found.view(SIDES)[0, 0]) == pytest.approx(0.5)  # and as much at the other end of the row
    assert float(found.view(SIDES)[0, 3]) == pytest.approx(1.0)
