"""What is measured against what: the convolution, every engine in every regime it is exact in, and dense attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...convert import SelfAttention2d, certify
from ...convert.engines import ENGINES
from ...convert.size import format_bytes
from .cases import Case, Regime
from .dense import DenseAttention, dense_flops, score_bytes

CONVOLUTION = "F.conv2d"
DENSE = "SDPA"
LITERAL, SEPARABLE = "literal", "separable"
ONE_HOT_ENGINES = ("sdpa",)  # exact where attention is one-hot, and nowhere else
REFERENCE_FLOPS = 2e9  # what the literal engine may take to check a result; above, the separable one does

Layer = Callable[[Tensor], Tensor]


class Built(NamedTuple):
    """A layer to run, and the parameters that training would ask gradients of."""

    function: Layer
    parameters: tuple[Tensor, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to compute a layer.

    Attributes:
        regime: Which attention it computes; the convolution counts as exact.
        method: ``CONVOLUTION``, ``DENSE`` or the name of an engine.
    """

    regime: Regime
    method: str

    @property
    def name(self) -> str:
        """What tables and plots call it."""
        return self.method if self.method == CONVOLUTION else f"{self.regime} {self.method}"

    def build(self, case: Case) -> Built:
        """Makes the layer; what it keeps between calls is made in its first call."""
        if self.method == CONVOLUTION:
            return Built(_convolution(case), tuple(case.conv.parameters()))
        layer = case.attention(self.regime, SEPARABLE if self.method == DENSE else self.method)
        function = DenseAttention(layer) if self.method == DENSE else layer
        return Built(function, (layer.weight,) if layer.bias is None else (layer.weight, layer.bias))

    def refusal(self, case: Case) -> str | None:
        """Why it is not run on a layer, or None if it is."""
        if self.method == DENSE:
            return _dense_refusal(case)
        if self.method not in ENGINES:
            return None
        layer = case.attention(self.regime, self.method)
        reason = ENGINES[self.method].refusal(layer)
        if reason is None and self.method == LITERAL:
            return _excess(case, "probabilities", torch.float32, _flops(layer, case))
        if reason is None and self.method in ONE_HOT_ENGINES:
            return slow(case, _flops(layer, case))
        return reason

    def flops(self, case: Case) -> int | None:
        """What the engine's cost predicts; None for what is not an engine."""
        return _flops(case.attention(self.regime, self.method), case) if self.method in ENGINES else None

    def bound(self, case: Case) -> float | None:
        """The derived bound on ``error``, or None where there is none.

        In the exact regime, the certificate's. In the soft one both sides are the same attention, each with the
        rounding of its own precision.
        """
        if self.regime is Regime.free:
            return None
        low, high = float(case.x.min()), float(case.x.max())
        certificate = certify(case.attention(self.regime, SEPARABLE), input_range=(low, high))
        if self.regime is Regime.exact:
            return certificate.bound
        reference = certify(_reference_layer(self.regime, case), input_range=(low, high))
        return certificate.rounding_attention + reference.rounding_attention


CANDIDATES: tuple[Candidate, ...] = (
    Candidate(Regime.exact, CONVOLUTION),
    *(Candidate(Regime.exact, engine) for engine in reversed(ENGINES) if engine != LITERAL),  # as slow as below
    *(Candidate(Regime.soft, engine) for engine in reversed(ENGINES) if engine not in ONE_HOT_ENGINES),
    Candidate(Regime.free, SEPARABLE),
    Candidate(Regime.free, DENSE),
)
"""In the order in which tables show them; the first is what the others are compared with."""


@torch.no_grad()
def reference_output(regime: Regime, case: Case) -> Tensor:
    """What a regime's layer is for the first image of a case, in float64: [1, out_channels, ...].

    The exact regime is held against the convolution; the others against the literal engine where that is quick,
    and against the separable one where it is not.
    """
    first = case.first_image()
    if regime is Regime.exact:
        return _convolution(first)(first.x)
    layer = _reference_layer(regime, case)
    layer.engine = LITERAL
    if _flops(layer, first) > REFERENCE_FLOPS:
        layer.engine = SEPARABLE
    output: Tensor = layer(first.x)
    return output


def _reference_layer(regime: Regime, case: Case) -> SelfAttention2d:
    """The layer with the very parameters that the case's dtype holds, in double precision."""
    return case.attention(regime, SEPARABLE).double()


def _convolution(case: Case) -> Layer:
    spec, conv = case.layer.spec, case.conv
    geometry = {"stride": spec.stride, "padding": spec.padding, "dilation": spec.dilation, "groups": spec.groups}
    return partial(F.conv2d, weight=conv.weight, bias=conv.bias, **geometry)


def _dense_refusal(case: Case) -> str | None:
    if case.layer.spec.groups > 1:
        return "it is written for layers without groups"
    flops = dense_flops(case.layer.spec, case.layer.size, batch=len(case.x))
    return _excess(case, "bias", case.x.dtype, flops)


def _excess(case: Case, scores: str, dtype: torch.dtype, flops: int) -> str | None:
    """Which limit attention with a score for every head, query and key would exceed, or None."""
    needed = score_bytes(case.layer.spec, case.layer.size, dtype)
    if needed > case.limits.memory:
        return f"its {scores} would take {format_bytes(needed)}, the limit is {format_bytes(case.limits.memory)}"
    return slow(case, flops)


def slow(case: Case, flops: int) -> str | None:
    """By how much a call would exceed the limit of FLOPs, or None."""
    return (
        f"a call would take {flops:.1e} FLOPs, the limit is {case.limits.flops:.1e}"
        if flops > case.limits.flops
        else None
    )


def _flops(layer: SelfAttention2d, case: Case) -> int:
    return ENGINES[layer.engine].cost(layer, case.layer.size, batch=len(case.x)).flops
