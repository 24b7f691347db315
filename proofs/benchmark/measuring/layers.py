"""Measures the candidates on one layer, and holds what they compute against the reference."""

from __future__ import annotations

import torch

from ..candidates.candidates import CANDIDATES, Built, Candidate, reference_output
from ..candidates.cases import Case, Regime
from ..candidates.results import Kind, Measurement, Phase, Row
from ..candidates.shapes import BenchmarkLayer
from ..candidates.trained import TRAINED
from .measure import LAYER_BATCH, Settings, forward_call, measure, training_call
from .timing import Call


def measure_layer(table: str, layer: BenchmarkLayer, settings: Settings, phase: Phase) -> list[Row]:
    """Measures a table's candidates on a layer, in one phase; the forward phase checks what they compute."""
    like = torch.empty(0, device=settings.device, dtype=settings.dtype)
    case = Case.draw(layer, batch=settings.batch or LAYER_BATCH, seed=settings.seed, like=like, limits=settings.limits)
    refused = {candidate: candidate.refusal(case) for candidate in TRAINED.get(table, CANDIDATES)}
    built = {candidate: candidate.build(case) for candidate, reason in refused.items() if reason is None}
    torch.compiler.reset()
    found = measure({c.name: _call(made, case, settings, phase) for c, made in built.items()}, settings)
    measured = {c: made for c, made in built.items() if isinstance(found[c.name], Measurement)}
    errors = _errors(measured, case) if phase is Phase.forward else {}
    return [
        _row(table, case, phase, candidate, found.get(candidate.name, reason or ""), errors.get(candidate))
        for candidate, reason in refused.items()
    ]


def _call(built: Built, case: Case, settings: Settings, phase: Phase) -> Call:
    function = torch.compile(lambda x: built.function(x)) if settings.compile else built.function
    if phase is Phase.forward:
        return forward_call(function, case.x)
    spec = case.layer.spec
    shape = (len(case.x), spec.out_channels, *spec.output_size(case.layer.size))
    cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(case.seed)).to(case.x)
    return training_call(function, case.x, built.parameters, cotangent)


def _errors(measured: dict[Candidate, Built], case: Case) -> dict[Candidate, tuple[float, float | None]]:
    """Largest error of each candidate on the first image, as part of the whole batch, and the bound on it."""
    references = {regime: reference_output(regime, case) for regime in Regime}
    errors = {}
    for candidate, built in measured.items():
        with torch.no_grad():
            output = built.function(case.x)[:1].double()
        errors[candidate] = (float((output - references[candidate.regime]).abs().max()), candidate.bound(case))
    return errors


def _row(
    table: str,
    case: Case,
    phase: Phase,
    candidate: Candidate,
    outcome: Measurement | str,
    error: tuple[float, float | None] | None,
) -> Row:
    layer, measured = case.layer, isinstance(outcome, Measurement)
    return Row(
        table=table,
        layer=layer.name,
        geometry=str(layer.spec),
        kind=Kind.depthwise if layer.is_depthwise else Kind.dense,
        size=layer.size,
        batch=len(case.x),
        count=layer.count,
        phase=phase,
        candidate=candidate.name,
        measurement=outcome if isinstance(outcome, Measurement) else None,
        error=error[0] if error else None,
        bound=error[1] if error else None,
        reason=None if measured else str(outcome),
        flops=candidate.flops(case) if measured else None,
    )
