"""What happens on given images: each attention layer beside its convolution, on the very same input.

A layer's own difference is that on the input it really gets in the converted network. What it inherits is what its
convolution makes of the difference between the two networks' inputs:

    attention(x_a) - conv(x_c)  =  attention(x_a) - conv(x_a)  +  conv(x_a) - conv(x_c)
    total                          own                            inherited

Under autocast both sides see the layer's input, weight and bias rounded, so its certificate is that of the rounded
layer on the rounded input (``autocast.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import image_batches
from ..attention.checked import checked_layer, checked_model
from ..attention.layer import SelfAttention
from ..autocast import autocast_dtype, rounded, without_autocast
from ..errors import ConversionError
from ..heads.values import AttentionLayer, LayerValues
from .data import MeasuredInput, certify_measured, measure_input
from .reference import right_convolutions, untrusted_note

_Parameters = tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class LayerComparison:
    """One attention layer on the images that were seen.

    Attributes:
        name: Fully qualified name.
        own: Largest |attention - convolution| on the same input.
        bound: What the layer's certificate allows for that input, as it was measured; NaN if the input or the layer's
            weights were not finite, also after autocast rounded them.
        inherited: Largest difference that the convolution makes of the difference in its input.
        total: Largest difference between the layer and the convolution, each in its own network.
        outputs: Largest absolute value of the convolution's outputs; a larger bound is not useful (``wording.py``).
        note: Why torch's own convolution was not the reference, if it was not.
    """

    name: str
    own: float
    bound: float
    inherited: float
    total: float
    outputs: float
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)


@torch.no_grad()
def compare_layers(cnn: nn.Module, model: nn.Module, batches: Iterable[Tensor]) -> tuple[LayerComparison, ...]:
    """Runs a CNN and its attention side by side, and compares each layer on the same input.

    Args:
        cnn: The network before the conversion; in eval mode.
        model: What ``convert_model`` made of it.
        batches: Images, [batch, channels, rows, columns] each, or tuples that start with them, as (images, labels).

    Raises:
        ConversionError: The networks do not have the same layers, are swapped, or there is no image.
    """
    with watched(cnn, model) as watchers:
        for images in image_batches(batches):
            model(images)
    return tuple(watcher.result() for watcher in watchers)


class LayerWatcher:
    """A forward hook that compares one attention layer with its convolution.

    Attributes:
        name: Fully qualified name of the layer.
        layer: The attention layer.
        seconds: What the comparison took.
        has_run: Whether the network used the layer.
    """

    def __init__(self, name: str, layer: SelfAttention, conv: nn.Module) -> None:
        self.name, self.layer, self.conv = name, layer, conv
        self.seconds = self._own = self._inherited = self._total = self._outputs = 0.0
        self.has_run, self._is_finite = False, True
        self._measured: dict[torch.dtype | None, MeasuredInput] = {}  # by the dtype that autocast rounds to
        self._expected: list[Tensor] = []
        self._faults: list[str] = []
        self._parameters: set[_Parameters] = set()  # with which the layer was called

    def expect(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps an output of the CNN's convolution."""
        self._expected.append(output.clone())  # the CNN may write into it, as ReLU in place does

    def forget(self) -> None:
        """Forgets the CNN's outputs, before its next run."""
        self._expected.clear()

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        """Compares an output of the attention layer; a transposed one may be told its size."""
        start = time.perf_counter()
        given, *_ = inputs
        x = given if given.ndim == self.layer.spec.axes + 2 else given.unsqueeze(0)
        if not self._expected:
            raise ConversionError(f"the CNN does not call {self.name} as often as the converted network")
        with right_convolutions() as faults:
            here, there = self.conv(*inputs, **options), self._expected.pop(0)
        if not len(x):
            return
        self._faults.extend(fault for fault in faults if fault not in self._faults)
        self._parameters.add(_parameters_of(self.layer))
        self._own = _larger(self._own, output, here)
        self._inherited = _larger(self._inherited, here, there)
        self._total = _larger(self._total, output, there)
        self._outputs = _larger(self._outputs, here, torch.zeros_like(here))
        self.has_run = True
        self._measure(x)
        self.seconds += time.perf_counter() - start

    def _measure(self, x: Tensor) -> None:
        """Keeps what is to be known of an input for the certificate, as the layer sees it."""
        dtype = autocast_dtype(x.device)
        layer, seen = _as_rounded(self.layer, dtype), x if dtype is None else rounded(x, dtype)
        read = [tensor for tensor in (seen, layer.weight, layer.bias) if tensor is not None]
        if not all(bool(tensor.isfinite().all()) for tensor in read):
            self._is_finite = False
            return
        measured, before = measure_input(layer, [seen]), self._measured.get(dtype)
        self._measured[dtype] = measured if before is None else before.joined(measured)

    def result(self) -> LayerComparison:
        """What was found.

        Raises:
            ConversionError: The layer was never called, computed with parameters that are not what they are now, or is
                not certified.
        """
        if not self.has_run:
            raise ConversionError(f"no image came to {self.name}")
        if self._parameters != {_parameters_of(self.layer)}:
            raise ConversionError(
                f"{self.name or 'the layer'} was called with other parameters than its own, as functional_call does, "
                "or they changed since: there is no certificate of what it computed"
            )
        bound = math.nan
        if self._is_finite:
            bound = max(self._bound(dtype, measured) for dtype, measured in self._measured.items())
        return LayerComparison(
            self.name, self._own, bound, self._inherited, self._total, self._outputs, untrusted_note(self._faults)
        )

    def _bound(self, dtype: torch.dtype | None, measured: MeasuredInput) -> float:
        layer = _as_rounded(self.layer, dtype)
        with without_autocast(layer.weight.device):
            return certify_measured(layer, measured, engine=self.layer.engine).bound


def _parameters_of(layer: nn.Module) -> _Parameters:
    """Which parameters and buffers a layer has now, and how often each was written to where torch counts that."""
    tensors = (*layer.parameters(), *layer.buffers())
    return tuple((id(tensor), None if tensor.is_inference() else tensor._version) for tensor in tensors)


def _as_rounded(layer: SelfAttention, dtype: torch.dtype | None) -> AttentionLayer:
    """The layer as autocast to a dtype makes it, or as it is where autocast is off."""
    return layer if dtype is None else LayerValues.of(checked_layer(layer)).rounded(dtype)


@contextmanager
def watched(cnn: nn.Module, model: nn.Module) -> Iterator[list[LayerWatcher]]:
    """Compares every attention layer with its convolution, whenever the converted network runs.

    The CNN runs on a copy of the same input first; that time is the first watcher's.

    Raises:
        ConversionError: The CNN lacks a layer, or the network has no attention layer.
    """
    _check_networks(cnn, model)
    watchers = []
    convs = dict(cnn.named_modules())
    for name, layer in model.named_modules():
        if not isinstance(layer, SelfAttention):
            continue
        if name not in convs:
            raise ConversionError(f"the CNN has no layer {name}")
        if isinstance(convs[name], SelfAttention):
            raise ConversionError(f"the CNN's layer {name or 'itself'} is self-attention, not a convolution")
        watchers.append(LayerWatcher(name, layer, convs[name]))

    def run_the_cnn(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        start = time.perf_counter()
        for watcher in watchers:
            watcher.forget()
        kept = [watcher.conv.register_forward_hook(watcher.expect) for watcher in watchers]
        try:
            with right_convolutions():
                cnn(*map(_copied, inputs), **{name: _copied(each) for name, each in options.items()})
        finally:
            for handle in kept:
                handle.remove()
        if watchers:
            watchers[0].seconds += time.perf_counter() - start

    handles = [model.register_forward_pre_hook(run_the_cnn, with_kwargs=True)]
    handles += [watcher.layer.register_forward_hook(watcher, with_kwargs=True) for watcher in watchers]
    try:
        yield watchers
    finally:
        for handle in handles:
            handle.remove()


def _copied(value: Any) -> Any:
    """An input that the CNN may write into."""
    return value.clone() if isinstance(value, Tensor) else value


def _check_networks(cnn: nn.Module, model: nn.Module) -> None:
    """Refuses networks that are swapped, and a second network without attention layers."""
    converted = [
        any(isinstance(module, SelfAttention) for module in checked_model(network, name).modules())
        for network, name in ((cnn, "cnn"), (model, "model"))
    ]
    if not converted[1]:
        hint = "the networks are swapped: the CNN comes first" if converted[0] else "convert it first"
        raise ConversionError(f"model has no self-attention layer; {hint}")


def _larger(so_far: float, a: Tensor, b: Tensor) -> float:
    """The larger of a number and max |a - b|; stays NaN, where ``max`` would drop it."""
    return float((a.double() - b.double()).abs().max().clamp(min=so_far))
