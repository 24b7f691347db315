"""Measures the candidates on one layer, and whole networks beside their conversions."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from ...convert import SelfAttention, convert_model
from ...convert.certificate.sampled import inputs_of_layers
from ...convert.size import Size
from .candidates import CANDIDATES, KEY_DIM, TRAINED, Built, draw_content, reference_output
from .cases import SOFT_ALPHA, Case
from .measure import LAYER_BATCH, LIMIT_FLOPS, NETWORK_BATCH, Call, Settings, forward_call, measure, training_call
from .results import Measurement, Phase, Row
from .tables import IMAGE_SIZE, NETWORK, NETWORKS, BenchmarkLayer

CNN, CONVERTED, SOFT, WITH_CONTENT = "CNN", "converted", "converted, soft", "converted, soft, with content"
COPY, CONVERSION = "copy.deepcopy", "convert_model"
_CONTENT_SIZE = 14  # pixels a side of the largest images whose layers get content, which is quadratic in their number


def measure_layer(table: str, layer: BenchmarkLayer, settings: Settings, phase: Phase) -> list[Row]:
    """Measures a table's candidates on a layer, in one phase; the forward phase checks what they compute."""
    case = Case.draw(
        layer,
        batch=settings.batch or LAYER_BATCH,
        seed=settings.seed,
        like=torch.empty(0, device=settings.device, dtype=settings.dtype),
        memory_limit=settings.memory_limit,
        limit_flops=settings.limit_flops or LIMIT_FLOPS.get(settings.device.type, math.inf),
    )
    refused = {candidate: candidate.refusal(case) for candidate in TRAINED.get(table, CANDIDATES)}
    built = {candidate: candidate.build(case) for candidate, reason in refused.items() if reason is None}
    torch.compiler.reset()
    found = measure({c.name: _layer_call(made, case, settings, phase) for c, made in built.items()}, settings)
    kind = "depthwise" if layer.is_depthwise else "dense"
    like = Row(table, layer.name, str(layer.spec), kind, layer.size, len(case.x), layer.count, phase, "")
    rows = []
    for candidate, reason in refused.items():
        row = _with_outcome(replace(like, candidate=candidate.name), found.get(candidate.name, reason or ""))
        if row.measurement is not None and phase is Phase.forward:
            with torch.no_grad():  # of the first image, as part of the whole batch
                apart = built[candidate].function(case.x)[:1].double() - reference_output(candidate.regime, case)
            row = replace(row, error=float(apart.abs().max()), bound=candidate.bound(case))
        rows.append(row)
    return rows


def _with_outcome(row: Row, outcome: Measurement | str) -> Row:
    """The row with its measurement, or with why there is none."""
    if isinstance(outcome, Measurement):
        return replace(row, measurement=outcome)
    return replace(row, reason=outcome)


def _layer_call(built: Built, case: Case, settings: Settings, phase: Phase) -> Call:
    function = torch.compile(lambda x: built.function(x)) if settings.compile else built.function
    if phase is Phase.forward:
        return forward_call(function, case.x)
    spec = case.layer.spec
    shape = (len(case.x), spec.out_channels, *spec.output_size(case.layer.size))
    cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(case.seed)).to(case.x)
    return training_call(function, case.x, built.parameters, cotangent)


def measure_network(name: str, settings: Settings, *, size: Size = IMAGE_SIZE) -> Iterator[Row]:
    """Measures a network beside its conversions, each phase by itself, then the conversion beside a copy."""
    batch = settings.batch or NETWORK_BATCH
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        cnn, x = NETWORKS[name](), torch.randn(batch, 3, *size)
    cnn, x = cnn.to(settings.device, settings.dtype), x.to(settings.device, settings.dtype)
    soft, with_content = (convert_model(cnn, alpha=SOFT_ALPHA).model for _ in range(2))
    add_content(with_content, x[:1], settings.seed)
    networks = {CNN: cnn, CONVERTED: convert_model(cnn).model, SOFT: soft, WITH_CONTENT: with_content}
    geometry = f"{sum(isinstance(module, nn.Conv2d) for module in cnn.modules())} convolutions"

    def rows(calls: dict[str, Call], phase: Phase) -> Iterator[Row]:
        like = Row(NETWORK, name, geometry, "network", size, batch, 1, phase, CNN)
        for candidate, found in measure(calls, settings).items():
            yield _with_outcome(replace(like, candidate=candidate), found)

    for phase in settings.phases:
        torch.compiler.reset()
        yield from rows({c: _network_call(network, x, settings, phase) for c, network in networks.items()}, phase)
    yield from rows({COPY: lambda: copy.deepcopy(cnn), CONVERSION: lambda: convert_model(cnn)}, Phase.conversion)


@torch.no_grad()
def add_content(network: nn.Module, x: torch.Tensor, seed: int) -> None:
    """Adds gated content to the layers of several taps that see images of at most ``_CONTENT_SIZE`` pixels a side."""
    generator = torch.Generator().manual_seed(seed)
    for name, seen in inputs_of_layers(network, x).items():
        layer = network.get_submodule(name)
        if isinstance(layer, SelfAttention) and layer.num_heads > 1 and max(seen.shape[2:]) <= _CONTENT_SIZE:
            draw_content(layer.add_content(KEY_DIM, gated=True), generator)


def _network_call(network: nn.Module, x: torch.Tensor, settings: Settings, phase: Phase) -> Call:
    """A call of the network as it is used: for inference in eval mode, else in train mode."""
    network.train(phase is Phase.training)
    function = torch.compile(network) if settings.compile else network
    if phase is Phase.forward:
        return forward_call(function, x)
    with torch.no_grad():
        cotangent = torch.ones_like(network(x))
    return training_call(function, x, [p for p in network.parameters() if p.requires_grad], cotangent)
