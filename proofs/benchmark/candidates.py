"""Candidates: the convolution, every engine in every regime that it is exact in, and dense attention.

Layers all of whose parameters are trained are candidates of tables of their own. Their content is not as
``add_content`` leaves it, when a forward call can leave it out: queries and keys are random, and every gate is half
open, as in a layer that has been trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...convert import SelfAttention2d, certify
from ...convert.engines import AUTO, ENGINES, choose_engine
from ...convert.heads.content import ContentTerms
from ...convert.size import format_bytes
from .cases import Case, DenseAttention, Regime, number_of_scores
from .tables import CONTENT, POSITIONS

CONVOLUTION = "F.conv2d"
DENSE = "SDPA"
LITERAL, SEPARABLE = "literal", "separable"
ONE_HOT_ENGINES = ("sdpa",)  # exact where attention is one-hot, and nowhere else
REFERENCE_FLOPS = 2e9  # limit of the literal engine for checking a result; above it, the separable engine is used
KEY_DIM = 8
HALF_OPEN = 0.5

Layer = Callable[[Tensor], Tensor]


class Learned(StrEnum):
    """Parameters that are trained besides value projections and bias."""

    positions = "positions"
    one_softmax = "positions and content in one softmax"
    gated = "positions and gated content"


class Built(NamedTuple):
    """A layer to run, and the parameters that training would ask gradients of."""

    function: Layer
    parameters: tuple[Tensor, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to compute a layer."""

    regime: Regime  # its attention; the convolution counts as exact
    method: str  # ``CONVOLUTION``, ``DENSE``, the name of an engine, or "auto" for the engine that a layer chooses
    learned: Learned | None = None  # parameters that are trained besides value projections and bias, if any

    @property
    def name(self) -> str:
        """Its name in tables and plots."""
        if self.learned is not None:
            return f"trained {self.learned}"
        return self.method if self.method == CONVOLUTION else f"{self.regime} {self.method}"

    def build(self, case: Case) -> Built:
        """Makes the layer, which prepares in its first call the data that it keeps between calls."""
        if self.method == CONVOLUTION:
            return Built(_convolution(case), tuple(case.conv.parameters()))
        layer = self._attention(case)
        if self.learned is not None:
            return Built(layer, tuple(layer.parameters()))
        function = DenseAttention(layer) if self.method == DENSE else layer
        return Built(function, (layer.weight,) if layer.bias is None else (layer.weight, layer.bias))

    def refusal(self, case: Case) -> str | None:
        """Why it cannot run on a layer, or None if it can."""
        if self.method == CONVOLUTION or self.learned is Learned.positions:
            return None
        if self.learned is not None:
            return _slow(case, _flops(self._attention(case), case))
        scores = number_of_scores(case.layer.spec, case.layer.size)
        if self.method == DENSE:
            if case.layer.spec.groups > 1:
                return "it does not support groups"
            products = 2 * 2 * len(case.x) * scores * case.layer.spec.out_channels
            return _too_large(case, scores * case.x.dtype.itemsize, "bias") or _slow(case, products)
        reason = ENGINES[self.method].refusal(self._attention(case))
        if reason is None and self.method == LITERAL:
            reason = _too_large(case, scores * torch.float32.itemsize, "probabilities")
        if reason is None and self.method in (LITERAL, *ONE_HOT_ENGINES):
            reason = _slow(case, _flops(self._attention(case), case))
        return reason

    def bound(self, case: Case) -> float | None:
        """The derived bound on the error, or None where there is none.

        In the exact regime, the certificate's. In the soft one both sides are the same attention, each with the
        rounding of its own precision.
        """
        if self.regime is Regime.free or self.learned is not None:
            return None
        limits = float(case.x.min()), float(case.x.max())
        layer = case.attention(self.regime, SEPARABLE)
        certificate = certify(layer, input_range=limits)
        if self.regime is Regime.exact:
            return certificate.bound
        return certificate.rounding_attention + certify(layer.double(), input_range=limits).rounding_attention

    def _attention(self, case: Case) -> SelfAttention2d:
        layer = case.attention(self.regime, SEPARABLE if self.method == DENSE else self.method)
        if self.learned in (Learned.one_softmax, Learned.gated):
            content = layer.add_content(KEY_DIM, gated=self.learned is Learned.gated)
            draw_content(content, torch.Generator().manual_seed(case.seed))
        if self.learned is not None:
            layer.train_positions()
        return layer


CANDIDATES: tuple[Candidate, ...] = (
    Candidate(Regime.exact, CONVOLUTION),
    *(Candidate(Regime.exact, engine) for engine in reversed(ENGINES) if engine != LITERAL),  # as slow as below
    *(Candidate(Regime.soft, engine) for engine in reversed(ENGINES) if engine not in ONE_HOT_ENGINES),
    Candidate(Regime.free, SEPARABLE),
    Candidate(Regime.free, DENSE),
)
"""In the order in which tables show them; the first is what the others are compared with."""

TRAINED: dict[str, tuple[Candidate, ...]] = {
    table: (CANDIDATES[0], *(Candidate(Regime.soft, AUTO, learned) for learned in ways))
    for table, ways in ((POSITIONS, [Learned.positions]), (CONTENT, [Learned.one_softmax, Learned.gated]))
}
"""Candidates on the tables of layers that are trained, forward + backward only."""


@torch.no_grad()
def reference_output(regime: Regime, case: Case) -> Tensor:
    """A regime's layer on the first image of a case, in float64: [1, out_channels, ...].

    The exact regime is held against the convolution; the others against the literal engine where that is quick,
    and against the separable one where it is not. The parameters are those that the case's dtype holds.
    """
    first = case.first_image()
    if regime is Regime.exact:
        return _convolution(first)(first.x)
    layer = case.attention(regime, LITERAL).double()
    if _flops(layer, first) > REFERENCE_FLOPS:
        layer.engine = SEPARABLE
    output: Tensor = layer(first.x)
    return output


@torch.no_grad()
def draw_content(content: ContentTerms, generator: torch.Generator) -> None:
    """Draws queries, keys and u so that scores are of about unit size, and half opens the gates."""
    channels = content.key_weight.shape[2]
    for parameter, variance in (
        (content.query_weight, 1 / (channels * KEY_DIM)),
        (content.key_weight, 1 / channels),
        (content.key_bias, 1 / KEY_DIM),
    ):
        parameter.copy_(variance**0.5 * torch.randn(parameter.shape, generator=generator))
    content.position_weight.zero_()
    if content.gate is not None:
        content.gate.fill_(HALF_OPEN)


def _convolution(case: Case) -> Layer:
    spec, conv = case.layer.spec, case.conv
    geometry = {"stride": spec.stride, "padding": spec.padding, "dilation": spec.dilation, "groups": spec.groups}
    return partial(F.conv2d, weight=conv.weight, bias=conv.bias, **geometry)


def _flops(layer: SelfAttention2d, case: Case) -> int:
    return choose_engine(layer, layer.engine).cost(layer, case.layer.size, batch=len(case.x)).flops


def _too_large(case: Case, needed: int, what: str) -> str | None:
    if needed <= case.memory_limit:
        return None
    return f"its {what} would take {format_bytes(needed)}, the limit is {format_bytes(case.memory_limit)}"


def _slow(case: Case, flops: int) -> str | None:
    if flops <= case.limit_flops:
        return None
    return f"a call would take {flops:.1e} FLOPs, the limit is {case.limit_flops:.1e}"
