"""Layers on given images: each attention layer beside its convolution, on the very same input.

A layer's own difference is that on the input it really gets in the converted network. It inherits what its convolution
makes of the difference between the two networks' inputs:

    attention(x_a) - conv(x_c)  =  attention(x_a) - conv(x_a)  +  conv(x_a) - conv(x_c)
    total                          own                            inherited

Under autocast both sides see the layer's input, weight and bias rounded, so its certificate is that of the rounded
layer on the rounded input (``context.py``).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..arguments import image_batches
from ..context import autocast_dtype, rounded, without_autocast
from ..errors import ConversionError
from ..layer.checked import checked_layer, checked_model
from ..layer.layer import SelfAttention
from .data import certify_measured, measure_input
from .layer import Certificate


@dataclass(frozen=True)
class LayerComparison:
    """Comparison of one attention layer with its convolution on the given images.

    Attributes:
        name: Fully qualified name.
        own: Largest |attention - convolution| on the same input.
        bound: The layer's certificate for the measured input; NaN if the input or the layer's weights were not finite,
            also after autocast rounded them.
        inherited: Largest difference that the convolution makes of the difference in its input.
        total: Largest difference between the layer and the convolution, each in its own network.
        outputs: Largest absolute value of the convolution's outputs; a larger bound is not useful (``is_useful``).
        note: That the convolution's own call is wrong on this processor, where that is why the bound is exceeded.
    """

    name: str
    own: float
    bound: float
    inherited: float
    total: float
    outputs: float
    note: str | None = None

    def joined(self, other: LayerComparison) -> LayerComparison:
        """The larger of each number, or NaN where one is."""
        pairs = zip(self._numbers, other._numbers, strict=True)
        own, bound, inherited, total, outputs = (math.nan if math.isnan(a + b) else max(a, b) for a, b in pairs)
        return LayerComparison(self.name, own, bound, inherited, total, outputs, self.note or other.note)

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self.own, self.bound, self.inherited, self.total, self.outputs

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)


@torch.no_grad()
def compare_layers(cnn: nn.Module, model: nn.Module, batches: Iterable[Tensor]) -> tuple[LayerComparison, ...]:
    """Runs a CNN and its attention side by side, and compares each layer on the same input.

    Args:
        cnn: The network before the conversion; in eval mode.
        model: The network that ``convert_model`` made of it.
        batches: Images, [batch, channels, rows, columns] each, or tuples that start with them, as (images, labels).

    Raises:
        ConversionError: The networks do not have the same layers, are swapped, or there is no image; or a layer is not
            certified, or was called with parameters that are not its own.
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
        seconds: Time that the comparison took.
        expected: Outputs of the CNN's convolution in its last run that are not compared yet.
    """

    def __init__(self, name: str, layer: SelfAttention, conv: nn.Module) -> None:
        self.name, self.layer, self.conv, self.seconds = name, layer, conv, 0.0
        self.expected: list[Tensor] = []
        self._found: LayerComparison | None = None
        self._parameters = list(map(id, layer.parameters()))

    @property
    def has_run(self) -> bool:
        """Whether the network used the layer."""
        return self._found is not None

    def result(self) -> LayerComparison:
        """The comparison on all images.

        Raises:
            ConversionError: The layer was never called.
        """
        if self._found is None:
            raise ConversionError(f"no image came to {self.name}")
        return self._found

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        """Compares an output of the attention layer; a transposed one accepts an output size."""
        if module is not self.layer:
            return  # a convolution that is left has the very hooks of its layer
        start = time.perf_counter()
        if not self.expected:
            raise ConversionError(f"the CNN does not call {self.name} as often as the converted network")
        if self._parameters != list(map(id, self.layer.parameters())):
            raise ConversionError(
                f"{self.name or 'the layer'} was called with other parameters than its own, as functional_call does: "
                "there is no certificate of what it computed"
            )
        here, there = self.conv(*inputs, **options), self.expected.pop(0)
        if not output.numel():
            return
        certificate = self._certificate(inputs[0])
        bound = math.nan if certificate is None else certificate.bound
        apart = _largest(output, here), bound, _largest(here, there), _largest(output, there)
        note = None
        if certificate is not None and not apart[0] <= bound:
            note = wrong_call(self.conv, inputs, options, here, certificate.rounding_convolution)
        found = LayerComparison(self.name, *apart, _largest(here), note)
        self._found = found if self._found is None else self._found.joined(found)
        self.seconds += time.perf_counter() - start

    def _certificate(self, x: Tensor) -> Certificate | None:
        """The certificate for an input, of the layer as autocast makes it; None if a number is not finite."""
        layer, dtype = checked_layer(self.layer), autocast_dtype(x.device)
        if dtype is not None:
            layer, x = layer.rounded(dtype), rounded(x, dtype)
        read = [tensor for tensor in (x, layer.weight, layer.bias) if tensor is not None]
        if not all(bool(tensor.isfinite().all()) for tensor in read):
            return None
        batch = x if x.ndim == layer.spec.axes + 2 else x.unsqueeze(0)
        with without_autocast(layer.weight.device):
            return certify_measured(layer, measure_input(layer, [batch]), engine=self.layer.engine)


def wrong_call(conv: nn.Module, inputs: Any, options: Any, output: Tensor, allowed: float) -> str | None:
    """A sentence that a convolution's own call is wrong, or None if rounding explains its distance from float64.

    Args:
        conv: The convolution.
        inputs: What it was called with, by place.
        options: What it was called with, by name.
        output: Its result.
        allowed: Bound on what rounding makes of it; float64's own is smaller by the ratio of the precisions, and at
            most as large.
    """
    precise = copy.deepcopy(conv).double()
    with without_autocast(output.device):
        exact = precise(*tree_map_only(Tensor, Tensor.double, tuple(inputs)), **options)
    apart = _largest(output.double(), exact)
    if apart <= 2 * allowed:
        return None
    return (
        f"torch's own convolution is wrong on this processor: {apart:.2g} from its result in float64, where rounding "
        f"explains {allowed:.2g}"
    )


@contextmanager
def watched(cnn: nn.Module, model: nn.Module) -> Iterator[list[LayerWatcher]]:
    """Compares every attention layer with its convolution, whenever the converted network runs.

    The CNN runs on a copy of the same input first; that time is the first watcher's.

    Raises:
        ConversionError: The CNN lacks a layer, or the network has no attention layer.
    """
    watchers = _watchers(checked_model(cnn, "cnn"), checked_model(model, "model"))

    def keep(watcher: LayerWatcher, output: Tensor) -> None:
        watcher.expected.append(output.clone())  # the CNN may write into it, as ReLU in place does

    def run_the_cnn(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        start = time.perf_counter()
        for watcher in watchers:
            watcher.expected.clear()
        kept = [each.conv.register_forward_hook(lambda *given, each=each: keep(each, given[-1])) for each in watchers]
        try:
            copies, named = tree_map_only(Tensor, Tensor.clone, (inputs, options))
            cnn(*copies, **named)
        finally:
            for handle in kept:
                handle.remove()
        watchers[0].seconds += time.perf_counter() - start

    handles = [model.register_forward_pre_hook(run_the_cnn, with_kwargs=True)]
    handles += [watcher.layer.register_forward_hook(watcher, with_kwargs=True) for watcher in watchers]
    try:
        yield watchers
    finally:
        for handle in handles:
            handle.remove()


def _watchers(cnn: nn.Module, model: nn.Module) -> list[LayerWatcher]:
    """One for each attention layer; refuses networks that are swapped, or do not belong together."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, SelfAttention)}
    if not layers:
        swapped = any(isinstance(module, SelfAttention) for module in cnn.modules())
        hint = "the networks are swapped: the CNN comes first" if swapped else "convert it first"
        raise ConversionError(f"model has no self-attention layer; {hint}")
    convs = dict(cnn.named_modules())
    for name in layers:
        if name not in convs:
            raise ConversionError(f"the CNN has no layer {name}")
        if isinstance(convs[name], SelfAttention):
            raise ConversionError(f"the CNN's layer {name or 'itself'} is self-attention, not a convolution")
    return [LayerWatcher(name, layer, convs[name]) for name, layer in layers.items()]


def _largest(a: Tensor, b: Tensor | None = None) -> float:
    """The largest |a|, or |a - b|; NaN where there is one."""
    return float((a.double() if b is None else a.double() - b.double()).abs().max())
