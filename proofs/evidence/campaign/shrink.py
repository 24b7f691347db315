"""Makes a failing layer small: one option after the other is simplified, as long as a check still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from ....convert.errors import GeometryError
from ....convert.size import Size
from ....convert.spec import ConvSpec
from ..random_layers import MEMORY_FORMATS, RandomLayer

LIMIT = 20.0  # seconds


def shrink(layer: RandomLayer, fails: Callable[[RandomLayer], bool], *, limit: float = LIMIT) -> RandomLayer:
    """A simpler layer that fails too, no step of which can be simplified further.

    Args:
        layer: A layer that fails.
        fails: Whether a layer fails.
        limit: Seconds after which the simplest layer so far is good enough.
    """
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        smaller = next((candidate for candidate in simpler(layer) if fails(candidate)), None)
        if smaller is None:
            break
        layer = smaller
    return layer


def simpler(layer: RandomLayer) -> Iterator[RandomLayer]:
    """All layers that are one step simpler, the largest steps first."""
    if layer.batch > 1:
        yield replace(layer, batch=1)
    for spec in _simpler_specs(layer.spec):
        if _accepts(spec, layer.size):
            yield replace(layer, spec=spec)
    for lengths in _one_smaller(layer.size, 1):
        if _accepts(layer.spec, Size(*lengths)):
            yield replace(layer, size=Size(*lengths))
    for plain, value in (("dtype", "float32"), ("alpha", 1.0), ("memory_format", MEMORY_FORMATS[0])):
        if getattr(layer, plain) != value:
            changes: dict[str, Any] = {plain: value}
            yield replace(layer, **changes)


def _simpler_specs(spec: ConvSpec) -> Iterator[ConvSpec]:
    groups, inputs, outputs = spec.groups, spec.in_channels // spec.groups, spec.out_channels // spec.groups
    channels = [(smaller, inputs, outputs) for smaller in _smaller(groups, 1)]
    channels += [(groups, smaller, outputs) for smaller in _smaller(inputs, 1)]
    channels += [(groups, inputs, smaller) for smaller in _smaller(outputs, 1)]
    for count, ins, outs in channels:
        yield replace(spec, groups=count, in_channels=count * ins, out_channels=count * outs)
    for added in _one_smaller(spec.output_padding, 0):
        yield replace(spec, output_padding=added)
    for kernel in _one_smaller(spec.kernel_size, 1):
        yield replace(spec, kernel_size=kernel)
    for name in ("stride", "dilation"):
        for smaller in _one_smaller(getattr(spec, name), 1):
            changes: dict[str, Any] = {name: smaller, "output_padding": ()}
            yield replace(spec, **changes)
    if isinstance(spec.padding, str):
        yield replace(spec, padding=())
    else:
        for padding in _one_smaller(cast(tuple[int, ...], spec.padding), 0):
            yield replace(spec, padding=padding)
    if spec.padding_mode != "zeros":
        yield replace(spec, padding_mode="zeros")
    if spec.bias:
        yield replace(spec, bias=False)


def _smaller(number: int, least: int) -> list[int]:
    """The least, half, and one less."""
    return sorted({least, max(least, number // 2), number - 1}) if number > least else []


def _one_smaller(numbers: tuple[int, ...], least: int) -> Iterator[tuple[int, ...]]:
    """The same numbers with one of them smaller."""
    for axis, number in enumerate(numbers):
        yield from ((*numbers[:axis], smaller, *numbers[axis + 1 :]) for smaller in _smaller(number, least))


def _accepts(spec: ConvSpec, size: Size) -> bool:
    try:
        spec.output_size(size)
    except GeometryError:
        return False
    return True
