"""Runs a CNN and its attention side by side on images, and compares all their outputs.

Each attention layer is also held against its convolution on the very same input (``layers.py``), so that a layer's own
difference is not mixed with what it inherits, and against the bound that its certificate gives for the values
that input really had. Each batch goes through the CNN once, and through its attention in every engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..certificate.layer import LayerComparison
from ..engines import AUTO
from ..errors import ConversionError, Problem
from ..inputs import as_inputs, bitwise, call_with, named_tensors, scores_of
from ..layer.layer import SelfAttention, set_engine
from ..network.plan import watching_runs
from ..sameness.same import same
from ..sameness.verdict import Sameness, same_bits
from .layers import LayerPairs, LayerWatcher

Outputs = list[dict[str, Tensor]]  # for each batch, the network's output tensors by name


@dataclass(frozen=True)
class LayerShape:
    """An attention layer, for a table: its geometry in words, its heads, and the smallest sharpness.

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
    sizes: dict[str, tuple[int, ...]]  # of each tensor, over all batches
    is_bitwise: bool  # whether all are the CNN's, bit for bit


@dataclass(frozen=True)
class Agreement:
    """A CNN and its attention on the same images."""

    images: int
    accuracy: float | None  # share of images that the CNN classifies as labelled; None without labels
    seconds: float  # time of the CNN
    engines: tuple[EngineAgreement, ...]  # the converted network, in each engine
    shapes: Mapping[str, LayerShape]  # the attention layers, by name
    idle: tuple[Problem, ...] = ()  # the layers that did not run, each with the reason


@dataclass
class _Run:
    """A network on all batches so far."""

    outputs: Outputs = field(default_factory=list)
    seconds: float = 0.0
    watchers: list[LayerWatcher] = field(default_factory=list)

    def on(self, network: nn.Module, batch: Any) -> None:
        """Runs the network on one more batch."""
        start = time.perf_counter()
        self.outputs.append(named_tensors(call_with(network, batch)))
        self.seconds += time.perf_counter() - start

    def beside(self, engine: str, cnn: _Run, labels: Tensor | None) -> EngineAgreement:
        """The agreement of these outputs with the CNN's."""
        found, expected = self.outputs, cnn.outputs
        apart = _apart(found, expected)
        return EngineAgreement(
            engine,
            top1_agreement=_share(_answers(found), _answers(expected)),
            accuracy=_share(_answers(found), labels),
            logit_difference=max(apart.values(), key=lambda value: math.inf if math.isnan(value) else value),
            outputs=apart,
            seconds=self.seconds - sum(watcher.seconds for watcher in self.watchers),
            layers=tuple(watcher.result() for watcher in self.watchers if watcher.has_run),
            sizes=_sizes(found),
            is_bitwise=all(map(_has_the_bits, found, expected)),
        )


@torch.no_grad()
def compare(
    cnn: nn.Module,
    attention: nn.Module,
    inputs: Tensor | Sequence[Any],
    labels: Tensor | None,
    *,
    engines: Sequence[str],
    batch_size: int = 100,
    places: int | None = None,
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
        places: Places at which each layer's outputs are compared in every batch, or None for whole maps.
        progress: Called with the number of images that one network has just seen.

    Raises:
        ConversionError: The network gives no tensor.
    """
    batches = torch.split(inputs, batch_size) if isinstance(inputs, Tensor) else inputs
    pairs, count = LayerPairs(cnn, attention, places=places), 0
    expected, found = _Run(), {engine: _Run(watchers=pairs.watchers()) for engine in engines}
    with watching_runs(attention) as runs:
        for batch in batches:
            count += batch_length(batch)
            pairs.recording(partial(expected.on, cnn, batch))
            progress(batch_length(batch))
            for engine, run in found.items():
                set_engine(attention, engine)
                with pairs.watching(run.watchers):
                    run.on(attention, batch)
                progress(batch_length(batch))
    set_engine(attention, AUTO)
    shapes = {name: LayerShape.of(m) for name, m in attention.named_modules() if isinstance(m, SelfAttention)}
    results = tuple(run.beside(engine, expected, labels) for engine, run in found.items())
    own = _share(_answers(expected.outputs), labels)
    return Agreement(count, own, expected.seconds, results, shapes, runs.idle(attention))


def sameness_of(cnn: nn.Module, attention: nn.Module, inputs: Any, found: EngineAgreement) -> Sameness:
    """The verdict on a whole network in one engine: same bits, where all outputs have them, or of the given inputs.

    Args:
        cnn: In eval mode.
        attention: The converted network. Its engine is "auto" afterwards.
        inputs: A batch; outputs that differ are held against rounding on it.
        found: The agreement in the engine.

    Raises:
        ConversionError: As ``same``.
    """
    if found.is_bitwise:
        return same_bits(found.sizes)
    set_engine(attention, found.engine)
    try:
        return same(cnn, attention, inputs)
    finally:
        set_engine(attention, AUTO)


def batch_length(batch: Any) -> int:
    """Number of images, or other inputs, in a batch."""
    placed, named = as_inputs(batch)
    first = next(iter((*placed, *named.values())))
    return len(first) if isinstance(first, list) or first.ndim else 1


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


def _sizes(found: Outputs) -> dict[str, tuple[int, ...]]:
    """The size of each tensor over all batches."""
    sizes: dict[str, tuple[int, ...]] = {}
    for each in found:
        for name, one in each.items():
            before = sizes.get(name, (0,))[0]
            sizes[name] = (before + one.shape[0], *one.shape[1:]) if one.ndim else (before + 1,)
    return sizes


def _has_the_bits(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(bitwise(value, other[name]) for name, value in one.items())


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
        return torch.empty(0, device="cpu")
    return torch.cat([each.argmax(1).flatten() for each in scores])


def _share(found: Tensor | None, wanted: Tensor | None) -> float | None:
    if found is None or wanted is None:
        return None
    if not found.numel() or not wanted.numel():
        return math.nan
    if found.shape != wanted.shape:
        return None
    return float((found == wanted).double().mean())
