"""Layers on given images: each attention layer beside its convolution, on the very same input.

A layer's own difference is that on the input it really gets in the converted network. It inherits what its convolution
makes of the difference between the two networks' inputs:

    attention(x_a) - conv(x_c)  =  attention(x_a) - conv(x_a)  +  conv(x_a) - conv(x_c)
    total                          own                            inherited

Under autocast both sides see the layer's input, weight and bias rounded, so its certificate is that of the rounded
layer on the rounded input (``context.py``).

A comparison at places (``places.py``) costs little beside the networks. Where a layer gives the bits of its
convolution, all of them are compared; else some places are, and the bound is for what the layer reads there.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..arguments import image_batches
from ..certificate.data import MeasuredInput, certify_measured, measure_input
from ..certificate.layer import Certificate, LayerComparison
from ..context import autocast_dtype, rounded, without_autocast
from ..errors import ConversionError
from ..heads.values import LayerValues
from ..layer.checked import checked_layer, checked_model
from ..layer.layer import SelfAttention
from .places import Places, convolved, measured_at

PLACES = 512  # of a layer's output, for each batch
_Value = TypeVar("_Value")


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

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)).eval()
        >>> rows = c2a.compare_layers(cnn, c2a.convert_model(cnn, alpha=24.0).model, [torch.rand(2, 3, 8, 8)])
        >>> [(row.name, row.own <= row.bound) for row in rows]
        [('0', True), ('2', True)]
    """
    pairs = LayerPairs(cnn, model)
    watchers = pairs.watchers()
    for images in image_batches(batches):
        pairs.recording(partial(cnn, images.clone()))
        with pairs.watching(watchers):
            model(images)
    return tuple(watcher.result() for watcher in watchers)


@dataclass(frozen=True)
class _Call:
    """A call of the CNN's convolution.

    Attributes:
        output: A copy of its result.
        windows: What it read at the places, where some are compared.
    """

    output: Tensor
    windows: Tensor | None


class LayerPairs:
    """The layers of a converted network, each with the CNN's convolution of the same name.

    Args:
        cnn: The network before the conversion.
        model: The converted network.
        places: Number of places that are compared of each output, or None for whole maps.

    Raises:
        ConversionError: The CNN lacks a layer, or the network has no attention layer.
    """

    def __init__(self, cnn: nn.Module, model: nn.Module, *, places: int | None = None) -> None:
        self._layers = _paired(checked_model(cnn, "cnn"), checked_model(model, "model"))
        self._calls: dict[str, list[_Call]] = {name: [] for name in self._layers}
        self._places = places

    def watchers(self) -> list[LayerWatcher]:
        """New watchers of all layers."""
        return [
            LayerWatcher(name, layer, conv, self._calls[name], self._places)
            for name, (layer, conv) in self._layers.items()
        ]

    def recording(self, run: Callable[[], _Value]) -> _Value:
        """Runs the CNN, and notes what its convolutions give."""
        for calls in self._calls.values():
            calls.clear()
        handles = [
            conv.register_forward_hook(partial(self._note, name, layer)) for name, (layer, conv) in self._layers.items()
        ]
        return _unhooked(handles, run)

    def _note(self, name: str, layer: SelfAttention, conv: nn.Module, inputs: Any, output: Tensor) -> None:
        windows = None
        if self._places is not None and output.numel():
            windows = _Reading(layer, inputs[0], output, self._places).windows
        self._calls[name].append(_Call(output.clone(), windows))  # the CNN may write into it, as ReLU in place does

    @contextmanager
    def watching(self, watchers: list[LayerWatcher]) -> Iterator[None]:
        """Compares every layer with its convolution while the converted network runs on what the CNN ran on last."""
        handles = []
        for watcher in watchers:
            watcher.begin()
            handles.append(watcher.layer.register_forward_hook(watcher, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _unhooked(handles: list[Any], run: Callable[[], _Value]) -> _Value:
    try:
        return run()
    finally:
        for handle in handles:
            handle.remove()


class _Reading:
    """Places of an output, and what the layer reads there; under autocast, of the rounded layer and input.

    Args:
        layer: The attention layer.
        x: Its input.
        output: Its output.
        places: Number of places.
    """

    def __init__(self, layer: SelfAttention, x: Tensor, output: Tensor, places: int) -> None:
        spec = layer.spec
        self._is_batch = x.ndim == spec.axes + 2
        x, output = self._batch(x), self._batch(output)
        dtype = autocast_dtype(x.device)
        if dtype is not None:
            x = rounded(x, dtype)
        self.x = x
        self.spec = spec.with_output_size(x.shape[2:], output.shape[2:]) if spec.transposed else spec
        self.places = Places.draw(output.shape, self.spec, places)
        self.windows = self.places.windows(self.spec, x)

    def _batch(self, y: Tensor) -> Tensor:
        return y if self._is_batch else y.unsqueeze(0)

    def of(self, output: Tensor) -> Tensor:
        """The numbers of an output there, [places, out_channels]."""
        return self.places.of(self._batch(output))


class LayerWatcher:
    """A forward hook that compares one attention layer with its convolution.

    Attributes:
        name: Fully qualified name of the layer.
        layer: The attention layer.
        seconds: Time that the comparison took.
    """

    def __init__(
        self, name: str, layer: SelfAttention, conv: nn.Module, calls: list[_Call], places: int | None
    ) -> None:
        self.name, self.layer, self.seconds = name, layer, 0.0
        self._conv, self._calls, self._places, self._place = conv, calls, places, 0
        self._found: LayerComparison | None = None
        self._parameters = list(map(id, layer.parameters()))

    def begin(self) -> None:
        """The next call of the layer is beside the CNN's first one."""
        self._place = 0

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
        if self._place >= len(self._calls):
            raise ConversionError(f"the CNN does not call {self.name} as often as the converted network")
        if self._parameters != list(map(id, self.layer.parameters())):
            raise ConversionError(
                f"{self.name or 'the layer'} was called with other parameters than its own, as functional_call does: "
                "there is no certificate of what it computed"
            )
        call = self._calls[self._place]
        self._place += 1
        if output.numel():
            compared = self._whole if self._places is None else self._at_places
            found = compared(inputs, options, output, call)
            self._found = found if self._found is None else self._found.joined(found)
        self.seconds += time.perf_counter() - start

    def _whole(self, inputs: tuple[Any, ...], options: dict[str, Any], output: Tensor, call: _Call) -> LayerComparison:
        """The comparison of whole maps."""
        here, there = self._conv(*inputs, **options), call.output
        batched = inputs[0].ndim == self.layer.spec.axes + 2
        certificate = self._certificate(inputs[0], lambda layer, x: measure_input(layer, [x if batched else x[None]]))
        bound = math.nan if certificate is None else certificate.bound
        apart = _largest(output, here), bound, _largest(here, there), _largest(output, there)
        note = None
        if certificate is not None and not apart[0] <= bound:
            note = wrong_call(self._conv, inputs, options, here, certificate.rounding_convolution)
        return LayerComparison(self.name, *apart, _largest(here), note)

    def _at_places(
        self, inputs: tuple[Any, ...], options: dict[str, Any], output: Tensor, call: _Call
    ) -> LayerComparison:
        """The comparison at places, or of all numbers where the layer has the bits of its convolution."""
        reading, there = _Reading(self.layer, inputs[0], output, self._places or 0), call.output
        is_same = call.windows is not None and torch.equal(reading.windows, call.windows) and torch.equal(output, there)
        here = there if is_same else self._conv(*inputs, **options)
        certificate = self._certificate(reading.x, lambda layer, x: measured_at(layer, x, reading.windows))
        bound = math.nan if certificate is None else certificate.bound
        own = 0.0 if is_same else _largest(reading.of(output), reading.of(here))
        between = (0.0, 0.0) if is_same else (float((here - there).abs().max()), float((output - there).abs().max()))
        note = None
        if certificate is not None and not max(own, self._from_truth(reading, output)) <= bound:
            note = wrong_call(self._conv, inputs, options, here, certificate.rounding_convolution)
        return LayerComparison(self.name, own, bound, *between, float(here.abs().max()), note)

    def _from_truth(self, reading: _Reading, output: Tensor) -> float:
        """The largest distance of an output from the convolution in float64."""
        layer = self._values(reading.x)
        return _largest(reading.of(output), convolved(reading.spec, reading.windows, layer.kernel, layer.bias))

    def _values(self, x: Tensor) -> LayerValues:
        """The layer as autocast makes it."""
        layer, dtype = checked_layer(self.layer), autocast_dtype(x.device)
        return layer if dtype is None else layer.rounded(dtype)

    def _certificate(self, x: Tensor, measure: Callable[[LayerValues, Tensor], MeasuredInput]) -> Certificate | None:
        """The certificate for an input, of the layer as autocast makes it; None if a number is not finite."""
        layer, dtype = self._values(x), autocast_dtype(x.device)
        if dtype is not None:
            x = rounded(x, dtype)
        read = [tensor for tensor in (x, layer.weight, layer.bias) if tensor is not None]
        if not all(bool(tensor.isfinite().all()) for tensor in read):
            return None
        with without_autocast(layer.weight.device):
            return certify_measured(layer, measure(layer, x), engine=self.layer.engine)


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


def _paired(cnn: nn.Module, model: nn.Module) -> dict[str, tuple[SelfAttention, nn.Module]]:
    """Each attention layer and its convolution; refuses networks that are swapped, or do not belong together."""
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
    return {name: (layer, convs[name]) for name, layer in layers.items()}


def _largest(a: Tensor, b: Tensor | None = None) -> float:
    """The largest |a|, or |a - b|; NaN where there is one."""
    return float((a.double() if b is None else a.double() - b.double()).abs().max())
