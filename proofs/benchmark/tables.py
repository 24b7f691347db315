"""The named tables of layers that are measured, and two networks.

The networks' tables are read off the networks themselves, run without values, so that no size is written twice. They
are untrained: the time of a convolution does not depend on its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ...convert.errors import SelectionError
from ...convert.model.plan import plan_layers
from ...convert.size import Size
from ...convert.spec import ConvSpec

_CLASSES = 1000

# blocks, middle channels and stride of each stage: He et al., arXiv 1512.03385, table 1
_RESNET50_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
_EXPANSION = 4

# expansion, channels, blocks and stride of each stage: Sandler et al., arXiv 1801.04381, table 2
_MOBILENETV2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
IMAGE_SIZE = Size(224, 224)
LADDER = "ladder"  # name of the table that a plot shows
LADDER_SIDES = (16, 32, 56, 112, 224)
LADDER_CHANNELS = 64


def resnet50() -> nn.Module:
    """ResNet-50, with the stride in the 3x3 convolutions as is usual: [batch, 3, rows, columns] to [batch, 1000]."""
    layers: list[nn.Module] = [*_normed(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    channels = 64
    for blocks, width, first_stride in _RESNET50_STAGES:
        out_channels = width * _EXPANSION
        for stride in (first_stride, *[1] * (blocks - 1)):
            narrow = [*_normed(channels, width, 1), nn.ReLU(), *_normed(width, width, 3, stride=stride), nn.ReLU()]
            residual = nn.Sequential(*narrow, *_normed(width, out_channels, 1))
            same = stride == 1 and channels == out_channels
            shortcut = nn.Identity() if same else nn.Sequential(*_normed(channels, out_channels, 1, stride=stride))
            layers += [_Sum(residual, shortcut), nn.ReLU()]
            channels = out_channels
    return nn.Sequential(*layers, *_classifier(channels))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 of width 1: [batch, 3, rows, columns] to [batch, 1000]."""
    layers: list[nn.Module] = [*_normed(3, 32, 3, stride=2), nn.ReLU6()]
    channels = 32
    for expansion, width, blocks, first_stride in _MOBILENETV2_STAGES:
        for stride in (first_stride, *[1] * (blocks - 1)):
            hidden = channels * expansion
            widened = [] if expansion == 1 else [*_normed(channels, hidden, 1), nn.ReLU6()]
            filtered = [*_normed(hidden, hidden, 3, stride=stride, groups=hidden), nn.ReLU6()]
            block = nn.Sequential(*widened, *filtered, *_normed(hidden, width, 1))
            layers.append(_Sum(block, nn.Identity()) if stride == 1 and channels == width else block)
            channels = width
    return nn.Sequential(*layers, *_normed(channels, 1280, 1), nn.ReLU6(), *_classifier(1280))


class _Sum(nn.Module):
    """Adds what two modules of the same shape give for the same input."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the two modules' sum."""
        return torch.add(self.one(x), self.other(x))


def _normed(in_channels: int, out_channels: int, side: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias that keeps the size but for its stride, and a normalisation."""
    conv = nn.Conv2d(in_channels, out_channels, side, stride=stride, padding=side // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out_channels)]


def _classifier(channels: int) -> list[nn.Module]:
    """Maps features [batch, channels, rows, columns] of any size to scores [batch, 1000]."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, _CLASSES)]


@dataclass(frozen=True)
class BenchmarkLayer:
    """One layer to measure."""

    name: str  # in a network, the first module with this geometry and input size
    spec: ConvSpec
    size: Size  # size of the input, without padding
    count: int = 1  # number of such layers in the network

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is filtered by itself."""
        return self.spec.groups == self.spec.in_channels > 1


def network_layers(build: Callable[[], nn.Module]) -> tuple[BenchmarkLayer, ...]:
    """The distinct convolutions of a network, each with its count."""
    with torch.device("meta"):
        network = build()
    names = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    layers: dict[tuple[ConvSpec, Size], BenchmarkLayer] = {}
    for plan in plan_layers(network, names, size=IMAGE_SIZE):
        if plan.input_size is None:
            raise SelectionError(f"the network does not run on images of {IMAGE_SIZE} pixels")
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
