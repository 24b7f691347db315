"""Runs a CNN and its attention side by side on images, and says how far apart they are.

Each attention layer is also held against its convolution on the very same input, so that a layer's own
difference is not mixed with what it inherits, and against the bound that its certificate gives for the values
that input really had.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.convert.attention import SelfAttention2d, set_engine
from conv2attn.convert.certificate import certify
from conv2attn.convert.engines import AUTO
from conv2attn.convert.report import names_by_module
from conv2attn.convert.spec import ConvSpec


@dataclass(frozen=True)
class LayerAgreement:
    """One attention layer against its convolution, on the same inputs.

    Attributes:
        name: Fully qualified name.
        spec: Geometry.
        heads: Attention heads.
        alpha: Smallest locality strength.
        difference: Largest |attention - convolution| over all outputs.
        bound: What the certificate allows for inputs within the range that was seen; NaN if they were not finite.
    """

    name: str
    spec: ConvSpec
    heads: int
    alpha: float
    difference: float
    bound: float


@dataclass(frozen=True)
class EngineAgreement:
    """A whole network in one engine against the CNN.

    Attributes:
        engine: The engine of all layers.
        top1_agreement: Share of images with the same highest score.
        accuracy: Share of images whose highest score is the label's; None without labels.
        logit_difference: Largest difference of a score.
        seconds: Time of the network, without the comparison.
        layers: Each layer that ran, by itself.
    """

    engine: str
    top1_agreement: float
    accuracy: float | None
    logit_difference: float
    seconds: float
    layers: tuple[LayerAgreement, ...]


@dataclass(frozen=True)
class Agreement:
    """A CNN and its attention on the same images.

    Attributes:
        images: How many.
        accuracy: Share of images that the CNN classifies as labelled; None without labels.
        seconds: Time of the CNN.
        engines: The converted network, in each engine.
    """

    images: int
    accuracy: float | None
    seconds: float
    engines: tuple[EngineAgreement, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)


@torch.no_grad()
def compare(
    cnn: nn.Module,
    attention: nn.Module,
    images: Tensor,
    labels: Tensor | None,
    *,
    engines: Sequence[str],
    batch_size: int = 100,
    progress: Callable[[int], None] = lambda _: None,
) -> Agreement:
    """Runs both networks on all images.

    Args:
        cnn: From images to scores [batch, classes]; in eval mode.
        attention: What ``convert_model`` made of it. Its engine is "auto" afterwards.
        images: [count, channels, rows, columns].
        labels: Class indices, [count], if there are any.
        engines: Engines to run the attention in.
        batch_size: Images at a time.
        progress: Called with the number of images that one network has just seen.
    """
    batches = torch.split(images, batch_size)
    expected, seconds = _scores(cnn, batches, progress, excluded=lambda: 0.0)
    results = []
    for engine in engines:
        set_engine(attention, engine)
        with _watched(cnn, attention) as watchers:
            scores, elapsed = _scores(attention, batches, progress, lambda: sum(w.seconds for w in watchers))
        layers = tuple(watcher.result() for watcher in watchers if watcher.has_run)
        same, right = _share(scores.argmax(1), expected.argmax(1)), _accuracy(scores, labels)
        apart = float((scores - expected).abs().max())
        results.append(EngineAgreement(engine, same, right, apart, elapsed, layers))
    set_engine(attention, AUTO)
    return Agreement(len(images), _accuracy(expected, labels), seconds, tuple(results))


def _scores(
    network: nn.Module,
    batches: Sequence[Tensor],
    progress: Callable[[int], None],
    excluded: Callable[[], float],
) -> tuple[Tensor, float]:
    """Scores of all images, and the seconds they took beside the excluded ones."""
    scores, start = [], time.perf_counter()
    for batch in batches:
        scores.append(network(batch))
        progress(len(batch))
    return torch.cat(scores), time.perf_counter() - start - excluded()


def _share(found: Tensor, wanted: Tensor) -> float:
    return float((found == wanted).double().mean())


def _accuracy(scores: Tensor, labels: Tensor | None) -> float | None:
    return None if labels is None else _share(scores.argmax(1), labels)


class _Watcher:
    """A forward hook that compares one attention layer with its convolution."""

    def __init__(self, name: str, layer: SelfAttention2d, conv: nn.Module) -> None:
        self.name, self.layer, self.conv = name, layer, conv
        self.difference, self.seconds = 0.0, 0.0
        self.low, self.high = torch.inf, -torch.inf

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        start = time.perf_counter()
        difference = (output.double() - self.conv(inputs[0]).double()).abs().max()
        self.difference = float(difference.clamp(min=self.difference))  # stays NaN, where max() would drop it
        self.low, self.high = min(self.low, float(inputs[0].min())), max(self.high, float(inputs[0].max()))
        self.seconds += time.perf_counter() - start

    @property
    def has_run(self) -> bool:
        """Whether the network used the layer."""
        return self.low <= self.high

    def result(self) -> LayerAgreement:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        bound = certify(self.layer, input_range=(self.low, self.high)).bound if finite else math.nan
        spec, alpha = self.layer.spec, min(self.layer.regime.alpha)
        return LayerAgreement(self.name, spec, spec.num_heads, alpha, self.difference, bound)


@contextmanager
def _watched(cnn: nn.Module, attention: nn.Module) -> Iterator[list[_Watcher]]:
    """Hooks a watcher to every attention layer for as long as the context lasts."""
    watchers, handles = [], []
    for names in names_by_module(attention, lambda module: isinstance(module, SelfAttention2d)):
        layer = attention.get_submodule(names[0])
        if isinstance(layer, SelfAttention2d):
            watchers.append(_Watcher(names[0], layer, cnn.get_submodule(names[0])))
            handles.append(layer.register_forward_hook(watchers[-1]))
    try:
        yield watchers
    finally:
        for handle in handles:
            handle.remove()
