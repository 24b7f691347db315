"""Runs a CNN and its attention side by side on images, and compares all their outputs.

Each attention layer is also held against its convolution on the very same input, so that a layer's own
difference is not mixed with what it inherits, and against the bound that its certificate gives for the values
that input really had.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..certificate.comparison import LayerComparison, watched
from ..engines import AUTO
from ..errors import ConversionError, Problem
from ..inputs import as_inputs, call_with, named_tensors, scores_of
from ..layer.layer import SelfAttention, set_engine
from .plan import watching_runs

Outputs = list[dict[str, Tensor]]  # for each batch, the network's output tensors by name


@dataclass(frozen=True)
class LayerShape:
    """An attention layer, for a table: its geometry in words, its heads, and the smallest locality strength.

    A soft one computes another function than its convolution.
    """

    geometry: str
    heads: int
    alpha: float
    is_soft: bool = False

    @classmethod
    def of(cls, layer: SelfAttention) -> LayerShape:
        """The shape of a layer."""
        return cls(str(layer.spec), layer.num_heads, min(layer.regime.alpha), not layer.regime.is_exact)


@dataclass(frozen=True)
class EngineAgreement:
    """Agreement of a whole network, in one engine, with the CNN."""

    engine: str
    # share of images with the same highest score; None where no output is known as scores, NaN where one is not finite
    top1_agreement: float | None
    accuracy: float | None  # share of images whose highest score is the label's; None without labels
    logit_difference: float  # largest difference of a number that the network gives
    outputs: dict[str, float]  # the same of each tensor that it gives, by its name
    seconds: float  # time of the network, without the comparison
    layers: tuple[LayerComparison, ...]  # each layer that ran, by itself


@dataclass(frozen=True)
class Agreement:
    """A CNN and its attention on the same images."""

    images: int
    accuracy: float | None  # share of images that the CNN classifies as labelled; None without labels
    seconds: float  # time of the CNN
    engines: tuple[EngineAgreement, ...]  # the converted network, in each engine
    shapes: Mapping[str, LayerShape]  # the attention layers, by name
    idle: tuple[Problem, ...] = ()  # the layers that did not run, each with the reason


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
    """Runs both networks on all inputs, and compares all their output tensors.

    Args:
        cnn: In eval mode.
        attention: The network that ``convert_model`` made of it. Its engine is "auto" afterwards.
        inputs: Images [count, channels, rows, columns], or batches of what the networks take (``inputs.as_inputs``).
        labels: Class indices, [count], if there are any.
        engines: Engines to run the attention in.
        batch_size: Images at a time, where no batches are given.
        progress: Called with the number of images that one network has just seen.

    Raises:
        ConversionError: The network gives no tensor.
    """
    batches = torch.split(inputs, batch_size) if isinstance(inputs, Tensor) else inputs
    expected, seconds = _outputs(cnn, batches, progress)
    results, idle = [], tuple[Problem, ...]()
    for engine in engines:
        set_engine(attention, engine)
        with watched(cnn, attention) as watchers, watching_runs(attention) as runs:
            found, elapsed = _outputs(attention, batches, progress)
        idle = runs.idle(attention)
        apart = _apart(found, expected)
        results.append(
            EngineAgreement(
                engine,
                top1_agreement=_share(_answers(found), _answers(expected)),
                accuracy=_share(_answers(found), labels),
                logit_difference=max(apart.values(), key=lambda value: math.inf if math.isnan(value) else value),
                outputs=apart,
                seconds=elapsed - sum(watcher.seconds for watcher in watchers),
                layers=tuple(watcher.result() for watcher in watchers if watcher.has_run),
            )
        )
    set_engine(attention, AUTO)
    shapes = {name: LayerShape.of(m) for name, m in attention.named_modules() if isinstance(m, SelfAttention)}
    count = sum(map(batch_length, batches))
    return Agreement(count, _share(_answers(expected), labels), seconds, tuple(results), shapes, idle)


def batch_length(batch: Any) -> int:
    """Number of images, or other inputs, in a batch."""
    placed, named = as_inputs(batch)
    first = next(iter((*placed, *named.values())))
    return len(first) if first.ndim else 1


def _outputs(network: nn.Module, batches: Sequence[Any], progress: Callable[[int], None]) -> tuple[Outputs, float]:
    """The tensors that a network gives for each batch, and the seconds they took."""
    found, start = [], time.perf_counter()
    for batch in batches:
        found.append(named_tensors(call_with(network, batch)))
        progress(batch_length(batch))
    return found, time.perf_counter() - start


def _apart(found: Outputs, expected: Outputs) -> dict[str, float]:
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


def _answers(found: Outputs) -> Tensor | None:
    """The class with the highest score for each image or pixel; None if no output is known to be scores.

    An empty tensor where a score is NaN or infinite: no answer is defined.
    """
    try:
        scores = [scores_of(each) for each in found]
    except ConversionError:
        return None
    if any(each.ndim < 2 or not each.is_floating_point() or not each.shape[1] for each in scores):
        return None
    if not all(bool(each.isfinite().all()) for each in scores):
        return torch.empty(0)
    return torch.cat([each.argmax(1).flatten() for each in scores])


def _share(found: Tensor | None, wanted: Tensor | None) -> float | None:
    if found is None or wanted is None:
        return None
    if not found.numel() or not wanted.numel():
        return math.nan
    if found.shape != wanted.shape:
        return None
    return float((found == wanted).double().mean())
