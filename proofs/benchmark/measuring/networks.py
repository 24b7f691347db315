"""Measures a whole network: the CNN, what it is converted to, and the conversion."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from ....convert import convert_model
from ....convert.size import Size
from ..candidates.networks import resnet50
from ..candidates.results import Kind, Measurement, Phase, Row
from ..candidates.shapes import IMAGE_SIZE, NETWORK
from .measure import NETWORK_BATCH, Settings, forward_call, measure, training_call
from .timing import Call

NAME = "resnet50"
BASE, CONVERTED = "CNN", "converted"
COPY, CONVERSION = "copy.deepcopy", "convert_model"


def measure_network(
    settings: Settings, *, build: Callable[[], nn.Module] = resnet50, size: Size = IMAGE_SIZE
) -> Iterator[list[Row]]:
    """Measures a network beside its conversion, each phase by itself, then the conversion beside a copy."""
    batch = settings.batch or NETWORK_BATCH
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        cnn, x = build(), torch.randn(batch, 3, *size)
    cnn, x = cnn.to(settings.device, settings.dtype), x.to(settings.device, settings.dtype)
    networks = {BASE: cnn, CONVERTED: convert_model(cnn).model}
    for phase in settings.phases:
        torch.compiler.reset()
        calls = {name: _call(network, x, settings, phase) for name, network in networks.items()}
        yield _rows(measure(calls, settings), phase, batch, size)
    copies: dict[str, Call] = {COPY: lambda: copy.deepcopy(cnn), CONVERSION: lambda: convert_model(cnn)}
    yield _rows(measure(copies, settings), Phase.conversion, batch, size)


def _call(network: nn.Module, x: torch.Tensor, settings: Settings, phase: Phase) -> Call:
    """A call of the network as it is used: for inference in eval mode, else in train mode."""
    network.train(phase is Phase.training)
    function = torch.compile(network) if settings.compile else network
    if phase is Phase.forward:
        return forward_call(function, x)
    with torch.no_grad():
        cotangent = torch.ones_like(network(x))
    return training_call(function, x, [p for p in network.parameters() if p.requires_grad], cotangent)


def _rows(found: Mapping[str, Measurement | str], phase: Phase, batch: int, size: Size) -> list[Row]:
    return [
        Row(
            table=NETWORK,
            layer=NAME,
            geometry="53 convolutions",
            kind=Kind.network,
            size=size,
            batch=batch,
            count=1,
            phase=phase,
            candidate=name,
            measurement=outcome if isinstance(outcome, Measurement) else None,
            reason=outcome if isinstance(outcome, str) else None,
        )
        for name, outcome in found.items()
    ]
