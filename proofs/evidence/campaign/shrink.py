"""Makes a failing layer small: one option after the other is simplified, as long as a check still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ....convert.errors import GeometryError
from ....convert.spec import ConvSpec, Size
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
    for rows, columns in _smaller_pairs(layer.size, 1):
        if _accepts(layer.spec, Size(rows, columns)):
            yield replace(layer, size=Size(rows, columns))
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
    for kernel in _smaller_pairs(spec.kernel_size, 1):
        yield replace(spec, kernel_size=kernel)
    for stride in _smaller_pairs(spec.stride, 1):
        yield replace(spec, stride=stride)
    for dilation in _smaller_pairs(spec.dilation, 1):
        yield replace(spec, dilation=dilation)
    if isinstance(spec.padding, str):
        yield replace(spec, padding=(0, 0))
    else:
        for padding in _smaller_pairs(spec.padding, 0):
            yield replace(spec, padding=padding)
    if spec.padding_mode != "zeros":
        yield replace(spec, padding_mode="zeros")
    if spec.bias:
        yield replace(spec, bias=False)


def _smaller(number: int, least: int) -> list[int]:
    """The least, half, and one less."""
    return sorted({least, max(least, number // 2), number - 1}) if number > least else []


def _smaller_pairs(pair: tuple[int, int], least: int) -> Iterator[tuple[int, int]]:
    first, second = pair
    yield from ((smaller, second) for smaller in _smaller(first, least))
    yield from ((first, smaller) for smaller in _smaller(second, least))


def _accepts(spec: ConvSpec, size: Size) -> bool:
    try:
        spec.output_size(size)
    except GeometryError:
        return False
    return True
