"""The named tables of layers that are measured.

The two networks' tables are read off the networks themselves, run without values, so that no size is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from ...convert.errors import SelectionError
from ...convert.model.plan import plan_layers
from ...convert.size import Size
from ...convert.spec import ConvSpec
from .networks import mobilenet_v2, resnet50

IMAGE_SIZE = Size(224, 224)
LADDER = "ladder"  # name of the table that a plot shows
LADDER_SIDES = (16, 32, 56, 112, 224)
LADDER_CHANNELS = 64


@dataclass(frozen=True)
class BenchmarkLayer:
    """One layer to measure.

    Attributes:
        name: In a network, the first module with this geometry and input size.
        spec: Geometry.
        size: Size of the input, without padding.
        count: Number of such layers in the network.
    """

    name: str
    spec: ConvSpec
    size: Size
    count: int = 1

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is filtered by itself."""
        return self.spec.groups == self.spec.in_channels > 1


def network_layers(build: Callable[[], nn.Module], *, size: Size = IMAGE_SIZE) -> tuple[BenchmarkLayer, ...]:
    """The distinct convolutions of a network that takes images of this size, each with its count."""
    with torch.device("meta"):
        network = build()
    names = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    layers: dict[tuple[ConvSpec, Size], BenchmarkLayer] = {}
    for plan in plan_layers(network, names, size=size):
        if plan.input_size is None:
            raise SelectionError(f"the network does not run on images of {size} pixels")
        key = (plan.spec, plan.input_size)
        known = layers.get(key, BenchmarkLayer(plan.name, *key, count=0))
        layers[key] = replace(known, count=known.count + 1)
    return tuple(layers.values())


def ladder_layers(sides: Sequence[int] = LADDER_SIDES) -> tuple[BenchmarkLayer, ...]:
    """One 3x3 layer of 64 channels, on square images of growing size."""
    spec = ConvSpec(LADDER_CHANNELS, LADDER_CHANNELS, (3, 3), padding=(1, 1))
    return tuple(BenchmarkLayer(f"{side}x{side}", spec, Size(side, side)) for side in sides)


def square_layer(channels: int, side: int) -> BenchmarkLayer:
    """A 3x3 layer with as many channels out as in, on a square image."""
    spec = ConvSpec(channels, channels, (3, 3), padding=(1, 1))
    return BenchmarkLayer(f"{channels} channels, {side}x{side}", spec, Size(side, side))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"resnet50": resnet50, "mobilenetv2": mobilenet_v2}
"""Networks that are measured as a whole, by name."""

POSITIONS, CONTENT = "positions", "content"
"""Names of the tables of layers that are trained, forward + backward."""

TABLES: dict[str, Callable[[], tuple[BenchmarkLayer, ...]]] = {
    "resnet50": partial(network_layers, resnet50),
    "mobilenetv2": partial(network_layers, mobilenet_v2),
    LADDER: ladder_layers,
    POSITIONS: lambda: (square_layer(64, 32), square_layer(256, 14), square_layer(128, 56)),
    CONTENT: lambda: (square_layer(64, 16), square_layer(256, 14), square_layer(64, 56)),
}
"""Tables of layers by name."""

NETWORK = "network"
"""Name of the table of whole networks, not of layers."""

TABLE_NAMES = (*TABLES, NETWORK)


def check_table_names(names: Sequence[str]) -> tuple[str, ...]:
    """The tables asked for, each once, in their usual order; all of them if none is asked for.

    Raises:
        SelectionError: There is no such table.
    """
    unknown = [name for name in names if name not in TABLE_NAMES]
    if unknown:
        raise SelectionError(f"there is no table {', '.join(unknown)}; the tables are {', '.join(TABLE_NAMES)}")
    return tuple(name for name in TABLE_NAMES if not names or name in names)
