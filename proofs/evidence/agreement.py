"""Runs a CNN and its attention side by side on images, and says how far apart they are.

Each attention layer is also held against its convolution on the very same input, so that a layer's own
difference is not mixed with what it inherits, and against the bound that its certificate gives for the values
that input really had.
"""

from __future__ import annotations

import math
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
from ...convert.errors import ConversionError
from ...convert.inputs import as_inputs, call_with
from ...convert.outputs import named_tensors, scores_of
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
        top1_agreement: Share of images with the same highest score; None where no output is known as scores.
        accuracy: Share of images whose highest score is the label's; None without labels.
        logit_difference: Largest difference of a number that the network gives.
        outputs: The same of each tensor that it gives, by its name.
        seconds: Time of the network, without the comparison.
        layers: Each layer that ran, by itself.
    """

    engine: str
    top1_agreement: float | None
    accuracy: float | None
    logit_difference: float
    outputs: dict[str, float]
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
    inputs: Tensor | Sequence[Any],
    labels: Tensor | None,
    *,
    engines: Sequence[str],
    batch_size: int = 100,
    progress: Callable[[int], None] = lambda _: None,
) -> Agreement:
    """Runs both networks on all inputs, and compares all tensors that they give.

    Args:
        cnn: In eval mode.
        attention: What ``convert_model`` made of it. Its engine is "auto" afterwards.
        inputs: Images [count, channels, rows, columns], or batches of what the networks take (``inputs.as_inputs``).
        labels: Class indices, [count], if there are any.
        engines: Engines to run the attention in.
        batch_size: Images at a time, where no batches are given.
        progress: Called with the number of images that one network has just seen.

    Raises:
        ConversionError: The network gives no tensor.
    """
    batches = torch.split(inputs, batch_size) if isinstance(inputs, Tensor) else inputs
    expected, seconds = _expected(cnn, batches, progress)
    results = []
    for engine in engines:
        set_engine(attention, engine)
        with watched(cnn, attention) as watchers:
            found, elapsed = _outputs(attention, batches, progress, lambda: sum(w.seconds for w in watchers))
        layers = tuple(_layer_agreement(watcher) for watcher in watchers if watcher.has_run)
        same, right = _share(_answers(found), _answers(expected)), _accuracy(found, labels)
        apart = _apart(found, expected)
        largest = max(apart.values(), key=lambda value: math.inf if math.isnan(value) else value)
        results.append(EngineAgreement(engine, same, right, largest, apart, elapsed, layers))
    set_engine(attention, AUTO)
    count = sum(map(batch_length, batches))
    return Agreement(count, _accuracy(expected, labels), seconds, tuple(results))


def batch_length(batch: Any) -> int:
    """How many images, or other inputs, a batch has."""
    placed, named = as_inputs(batch)
    first = next(iter((*placed, *named.values())))
    return len(first) if first.ndim else 1


def _expected(
    cnn: nn.Module, batches: Sequence[Any], progress: Callable[[int], None]
) -> tuple[list[dict[str, Tensor]], float]:
    """Outputs of the CNN, with convolutions that are right, and the seconds that torch's own convolutions take."""
    found, seconds = _outputs(cnn, batches, progress, excluded=lambda: 0.0)
    with right_convolutions() as faults:
        call_with(cnn, batches[0])
        if faults:
            found, _ = _outputs(cnn, batches, lambda _: None, excluded=lambda: 0.0)
    return found, seconds


def _outputs(
    network: nn.Module,
    batches: Sequence[Any],
    progress: Callable[[int], None],
    excluded: Callable[[], float],
) -> tuple[list[dict[str, Tensor]], float]:
    """The tensors that a network gives for each batch, and the seconds they took beside the excluded ones."""
    found, start = [], time.perf_counter()
    for batch in batches:
        found.append(named_tensors(call_with(network, batch)))
        progress(batch_length(batch))
    return found, time.perf_counter() - start - excluded()


def _apart(found: Sequence[dict[str, Tensor]], expected: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """Largest difference of each tensor; infinite where one network lacks it, or has it in another shape."""
    apart: dict[str, float] = {}
    for one, other in zip(found, expected, strict=True):
        for name in {**one, **other}:
            so_far, here = apart.get(name, 0.0), _difference(one.get(name), other.get(name))
            apart[name] = here if math.isnan(here) or here > so_far else so_far
    return apart


def _difference(one: Tensor | None, other: Tensor | None) -> float:
    if one is None or other is None or one.shape != other.shape:
        return math.inf
    wide = torch.complex128 if one.is_complex() else torch.float64
    return float((one.to(wide) - other.to(wide)).abs().max()) if one.numel() else 0.0


def _answers(found: Sequence[dict[str, Tensor]]) -> Tensor | None:
    """The class with the highest score, of each image or pixel; None where no output is known as scores."""
    try:
        scores = [scores_of(each) for each in found]
    except ConversionError:
        return None
    if any(each.ndim < 2 or not each.is_floating_point() or not each.shape[1] for each in scores):
        return None
    return torch.cat([each.argmax(1).flatten() for each in scores])


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


def _share(found: Tensor | None, wanted: Tensor | None) -> float | None:
    if found is None or wanted is None or found.shape != wanted.shape:
        return None
    return float((found == wanted).double().mean())


def _accuracy(found: Sequence[dict[str, Tensor]], labels: Tensor | None) -> float | None:
    return None if labels is None else _share(_answers(found), labels)
