"""Measures whole networks: the CNN, what it is converted to in either regime, with content too, and the conversion."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import nn

from ....convert import SelfAttention, convert_model
from ....convert.size import Size
from ..candidates.cases import SOFT_ALPHA
from ..candidates.results import Kind, Measurement, Phase, Row
from ..candidates.shapes import IMAGE_SIZE, NETWORK, NETWORKS
from ..candidates.trained import KEY_DIM, draw_content
from .measure import NETWORK_BATCH, Settings, forward_call, measure, training_call
from .timing import Call

BASE, CONVERTED, SOFT, WITH_CONTENT = "CNN", "converted", "converted, soft", "converted, soft, with content"
COPY, CONVERSION = "copy.deepcopy", "convert_model"
_CONTENT_SIZE = 14  # pixels a side of the largest images whose layers get content, which is quadratic in their number


def measure_network(name: str, settings: Settings, *, size: Size = IMAGE_SIZE) -> Iterator[list[Row]]:
    """Measures a network beside its conversions, each phase by itself, then the conversion beside a copy.

    Args:
        name: Out of ``NETWORKS``.
        settings: How.
        size: Of the images.
    """
    batch = settings.batch or NETWORK_BATCH
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        cnn, x = NETWORKS[name](), torch.randn(batch, 3, *size)
    cnn, x = cnn.to(settings.device, settings.dtype), x.to(settings.device, settings.dtype)
    soft, with_content = (convert_model(cnn, alpha=SOFT_ALPHA).model for _ in range(2))
    _add_content(with_content, x[:1], settings.seed)
    networks = {BASE: cnn, CONVERTED: convert_model(cnn).model, SOFT: soft, WITH_CONTENT: with_content}
    like = Row(NETWORK, name, _told(cnn), Kind.network, size, batch, 1, Phase.forward, BASE, None)
    for phase in settings.phases:
        torch.compiler.reset()
        calls = {name: _call(network, x, settings, phase) for name, network in networks.items()}
        yield _rows(measure(calls, settings), replace(like, phase=phase))
    copies: dict[str, Call] = {COPY: lambda: copy.deepcopy(cnn), CONVERSION: lambda: convert_model(cnn)}
    yield _rows(measure(copies, settings), replace(like, phase=Phase.conversion))


def _told(network: nn.Module) -> str:
    return f"{sum(isinstance(module, nn.Conv2d) for module in network.modules())} convolutions"


def _add_content(network: nn.Module, x: torch.Tensor, seed: int) -> None:
    """Adds gated content to the layers of several taps that see images of at most ``_CONTENT_SIZE`` pixels a side."""
    layers, seen = [m for m in network.modules() if isinstance(m, SelfAttention) and m.num_heads > 1], {}
    hooks = [
        layer.register_forward_pre_hook(lambda layer, inputs: seen.update({layer: max(inputs[0].shape[2:])}))
        for layer in layers
    ]
    was_training = network.training
    with torch.no_grad():
        network.eval()(x)
    network.train(was_training)
    for hook in hooks:
        hook.remove()
    generator = torch.Generator().manual_seed(seed)
    for layer in layers:
        if seen[layer] <= _CONTENT_SIZE:
            draw_content(layer.add_content(KEY_DIM, gated=True), generator)


def _call(network: nn.Module, x: torch.Tensor, settings: Settings, phase: Phase) -> Call:
    """A call of the network as it is used: for inference in eval mode, else in train mode."""
    network.train(phase is Phase.training)
    function = torch.compile(network) if settings.compile else network
    if phase is Phase.forward:
        return forward_call(function, x)
    with torch.no_grad():
        cotangent = torch.ones_like(network(x))
    return training_call(function, x, [p for p in network.parameters() if p.requires_grad], cotangent)


def _rows(found: Mapping[str, Measurement | str], like: Row) -> list[Row]:
    """A row for every candidate, otherwise like the one given."""
    return [
        replace(like, candidate=name, measurement=outcome)
        if isinstance(outcome, Measurement)
        else replace(like, candidate=name, reason=outcome)
        for name, outcome in found.items()
    ]
