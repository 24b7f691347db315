"""Runs a CNN and its attention side by side on images, and says how far apart they are.

Each attention layer is also held against its convolution on the very same input, so that a layer's own
difference is not mixed with what it inherits, and against the bound that its certificate gives for the values
that input really had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...convert.attention.layer import set_engine
from ...convert.certificate.comparison import LayerComparison, LayerWatcher, watched
from ...convert.certificate.reference import right_convolutions
from ...convert.engines import AUTO
from ...convert.spec import ConvSpec


@dataclass(frozen=True)
class LayerAgreement:
    """One attention layer against its convolution, on the same inputs.

    Attributes:
        name: Fully qualified name.
        spec: Geometry.
        heads: Attention heads.
        alpha: Smallest locality strength.
        difference: Largest |attention - convolution| over all outputs, on the same input.
        bound: What the certificate allows for the inputs that were seen; NaN if they were not finite.
        inherited: Largest difference that the convolution makes of the difference in its input.
        total: Largest difference between the layer and the convolution, each in its own network.
        outputs: Largest absolute value of the convolution's outputs.
        note: Why torch's own convolution was not the reference, if it was not.
    """

    name: str
    spec: ConvSpec
    heads: int
    alpha: float
    difference: float
    bound: float
    inherited: float
    total: float
    outputs: float
    note: str | None = None

    @property
    def comparison(self) -> LayerComparison:
        """What was measured, as a report keeps it."""
        return LayerComparison(
            self.name, self.difference, self.bound, self.inherited, self.total, self.outputs, self.note
        )


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
    expected, seconds = _expected_scores(cnn, batches, progress)
    results = []
    for engine in engines:
        set_engine(attention, engine)
        with watched(cnn, attention) as watchers:
            scores, elapsed = _scores(attention, batches, progress, lambda: sum(w.seconds for w in watchers))
        layers = tuple(_layer_agreement(watcher) for watcher in watchers if watcher.has_run)
        same, right = _share(scores.argmax(1), expected.argmax(1)), _accuracy(scores, labels)
        apart = float((scores - expected).abs().max())
        results.append(EngineAgreement(engine, same, right, apart, elapsed, layers))
    set_engine(attention, AUTO)
    return Agreement(len(images), _accuracy(expected, labels), seconds, tuple(results))


def _expected_scores(
    cnn: nn.Module, batches: Sequence[Tensor], progress: Callable[[int], None]
) -> tuple[Tensor, float]:
    """Scores of the CNN, with convolutions that are right, and the seconds that torch's own convolutions take."""
    scores, seconds = _scores(cnn, batches, progress, excluded=lambda: 0.0)
    with right_convolutions() as faults:
        cnn(batches[0][:1].clone())
        if faults:
            scores, _ = _scores(cnn, batches, lambda _: None, excluded=lambda: 0.0)
    return scores, seconds


def _scores(
    network: nn.Module,
    batches: Sequence[Tensor],
    progress: Callable[[int], None],
    excluded: Callable[[], float],
) -> tuple[Tensor, float]:
    """Scores of all images, and the seconds they took beside the excluded ones."""
    scores, start = [], time.perf_counter()
    for batch in batches:
        scores.append(network(batch.clone()))  # which it may write into
        progress(len(batch))
    return torch.cat(scores), time.perf_counter() - start - excluded()


def _layer_agreement(watcher: LayerWatcher) -> LayerAgreement:
    found, layer = watcher.result(), watcher.layer
    return LayerAgreement(
        name=found.name,
        spec=layer.spec,
        heads=layer.num_heads,
        alpha=min(layer.regime.alpha),
        difference=found.own,
        bound=found.bound,
        inherited=found.inherited,
        total=found.total,
        outputs=found.outputs,
        note=found.note,
    )


def _share(found: Tensor, wanted: Tensor) -> float:
    return float((found == wanted).double().mean())


def _accuracy(scores: Tensor, labels: Tensor | None) -> float | None:
    return None if labels is None else _share(scores.argmax(1), labels)
