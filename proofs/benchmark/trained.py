"""Attention layers all of whose parameters are trained: where heads look, too, and what they read from the image.

Heads start at the kernel's taps with alpha 2. Content is not as ``add_content`` leaves it, when a forward call can
leave it out: queries and keys are random, and every gate is half open, as in a layer that has been trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

from ...convert import SelfAttention2d
from ...convert.engines import AUTO, choose_engine
from ...convert.heads.content import ContentTerms
from .candidates import CANDIDATES, Built, Candidate, slow
from .cases import Case, Regime
from .tables import CONTENT, POSITIONS

KEY_DIM = 8
HALF_OPEN = 0.5


class Learned(StrEnum):
    """What is trained besides value projections and bias."""

    positions = "positions"
    one_softmax = "positions and content in one softmax"
    gated = "positions and gated content"


@dataclass(frozen=True)
class TrainedCandidate(Candidate):
    """A soft layer, in the engine that it chooses for itself, with the gradients of every parameter.

    Attributes:
        learned: What is trained besides value projections and bias.
    """

    regime: Regime = Regime.soft
    method: str = AUTO
    learned: Learned = Learned.positions

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"trained {self.learned}"

    def build(self, case: Case) -> Built:
        """Makes the layer; training asks for the gradients of all its parameters."""
        layer = self._layer(case)
        return Built(layer, tuple(layer.parameters()))

    def refusal(self, case: Case) -> str | None:
        """Content is quadratic in the pixels, so it is left out where a forward call takes too long."""
        return None if self.learned is Learned.positions else slow(case, self.flops(case))

    def flops(self, case: Case) -> int:
        """What the engine's cost predicts for the forward pass."""
        layer, size, batch = self._layer(case), case.layer.size, len(case.x)
        return choose_engine(layer, layer.engine, size, batch=batch).cost(layer, size, batch=batch).flops

    def bound(self, case: Case) -> float | None:
        """None: only what a layer costs to train is measured."""
        return None

    def _layer(self, case: Case) -> SelfAttention2d:
        layer = case.attention(self.regime, self.method)
        if self.learned is not Learned.positions:
            content = layer.add_content(KEY_DIM, gated=self.learned is Learned.gated)
            draw_content(content, torch.Generator().manual_seed(case.seed))
        layer.alpha.requires_grad_()
        layer.centers.requires_grad_()
        return layer


TRAINED: dict[str, tuple[Candidate, ...]] = {
    POSITIONS: (CANDIDATES[0], TrainedCandidate()),
    CONTENT: (CANDIDATES[0], *(TrainedCandidate(learned=way) for way in (Learned.one_softmax, Learned.gated))),
}
"""What is measured on the tables of layers that are trained, forward + backward only."""


@torch.no_grad()
def draw_content(content: ContentTerms, generator: torch.Generator) -> None:
    """Draws queries, keys and u so that scores are of about unit size, and half opens the gates.

    Args:
        content: The terms, with a ``key_dim`` of ``KEY_DIM``.
        generator: Source of the numbers.
    """
    channels = content.key_weight.shape[2]
    drawn = (
        (content.query_weight, (channels * KEY_DIM) ** -0.5),
        (content.key_weight, channels**-0.5),
        (content.key_bias, KEY_DIM**-0.5),
    )
    for parameter, deviation in drawn:
        parameter.copy_(deviation * torch.randn(parameter.shape, generator=generator))
    content.position_weight.zero_()
    if content.gate is not None:
        content.gate.fill_(HALF_OPEN)
