"""Every rule by which bounds are carried through a network, against random numbers within the bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.certificate.propagation import functions
from conv2attn.convert.certificate.propagation.call import Call
from conv2attn.convert.certificate.propagation.interval import Interval
from conv2attn.convert.certificate.propagation.network import follow
from conv2attn.convert.size import Size

CHANNELS, SIZE = 4, Size(5, 6)
NORM = nn.BatchNorm2d(CHANNELS)
VOLUMES = nn.Sequential(nn.Unflatten(2, (1, SIZE.rows)), nn.Dropout3d())

OPERATIONS: dict[str, nn.Module | Callable[[Tensor], Tensor]] = {
    "conv": nn.Conv2d(CHANNELS, 6, (3, 2), stride=(1, 2), padding=1, groups=2),
    "conv with replicated padding": nn.Conv2d(CHANNELS, 3, 3, padding=1, padding_mode="replicate", bias=False),
    "transposed conv": nn.ConvTranspose2d(
        CHANNELS, 6, (3, 2), stride=(1, 3), padding=1, output_padding=(0, 2), groups=2
    ),
    "dropout of sequences and volumes": nn.Sequential(nn.Flatten(2), nn.Dropout1d(), nn.Unflatten(2, SIZE), VOLUMES),
    **{
        f"{name} of sequences": nn.Sequential(nn.Flatten(2), module)
        for name, module in {
            "conv": nn.Conv1d(CHANNELS, 6, 4, stride=2, padding=3, dilation=2, groups=2),
            "transposed conv": nn.ConvTranspose1d(CHANNELS, 6, 4, stride=3, padding=2, output_padding=1, groups=2),
            "max pool": nn.MaxPool1d(2, padding=1),
            "average pool": nn.AvgPool1d(3, padding=1),
            "adaptive max pool": nn.AdaptiveMaxPool1d(4),
            "adaptive average pool": nn.AdaptiveAvgPool1d(4),
        }.items()
    },
    **{
        f"{name} of volumes": nn.Sequential(nn.Unflatten(2, (1, SIZE.rows)), module)
        for name, module in {
            "conv": nn.Conv3d(CHANNELS, 6, (1, 2, 3), stride=(1, 2, 1), padding=1, groups=2),
            "transposed conv": nn.ConvTranspose3d(CHANNELS, 6, (2, 1, 3), stride=2, padding=1, groups=2),
            "max pool": nn.MaxPool3d((1, 2, 2)),
            "average pool": nn.AvgPool3d((1, 2, 2), padding=(0, 1, 1)),
            "adaptive max pool": nn.AdaptiveMaxPool3d((1, 2, 2)),
            "adaptive average pool": nn.AdaptiveAvgPool3d((1, 2, 2)),
        }.items()
    },
    "linear": nn.Linear(SIZE.columns, 3),
    "linear on vectors": nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * 30, 5)),
    "batch norm": NORM,
    "batch norm on vectors": nn.Sequential(nn.Flatten(), nn.BatchNorm1d(CHANNELS * 30)),
    "identity": nn.Identity(),
    "dropout": nn.Sequential(nn.Dropout(), nn.Dropout2d()),
    "max pool": nn.MaxPool2d(2, padding=1),
    "adaptive max pool": nn.AdaptiveMaxPool2d(2),
    "average pool": nn.AvgPool2d((2, 3), padding=1),
    "average pool without padding": nn.AvgPool2d(2),
    "adaptive average pool": nn.AdaptiveAvgPool2d((2, 3)),
    "flatten": nn.Flatten(),
    "unflatten": nn.Unflatten(1, (2, 2)),
    "channel shuffle": nn.ChannelShuffle(2),
    "upsample": nn.Upsample(scale_factor=2, mode="bilinear"),
    "upsample to the nearest": nn.Upsample(scale_factor=2),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "hardtanh": nn.Hardtanh(-0.5, 0.75),
    "leaky relu": nn.LeakyReLU(0.2),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardswish": nn.Hardswish(),
    "silu": nn.SiLU(),
    "gelu": nn.GELU(),
    **{
        f"F.{name}": getattr(F, name)
        for name in ("relu", "relu6", "hardsigmoid", "hardswish", "silu", "gelu", "leaky_relu")
    },
    "torch.sigmoid": torch.sigmoid,
    "torch.tanh": torch.tanh,
    **{
        f"{name} in place": lambda x, name=name: getattr(torch, name)(x * 1)  # type: ignore[misc]
        for name in ("relu_", "sigmoid_", "tanh_")
    },
    "F.hardtanh_": lambda x: F.hardtanh_(x * 1, -0.5, 0.75),
    "F.leaky_relu_": lambda x: F.leaky_relu_(x * 1, 0.2),
    "1 - x": lambda x: 1 - x,
    "div_": lambda x: (x * 1).div_(3),
    "concatenate": lambda x: torch.concatenate([x, x * 2]),
    "F.pad": lambda x: F.pad(x, (1, 0, 2, 1), value=0.5),
    "F.pad, reflected": lambda x: F.pad(x, (1, 0, 2, 1), mode="reflect"),
    "x + f(x)": lambda x: x + F.relu(x),
    "x - f(x)": lambda x: x - F.relu(x),
    "x f(x)": lambda x: x * torch.sigmoid(x),
    "x plus a number": lambda x: torch.add(x, 1.25),
    "x times a number": lambda x: torch.mul(x, -0.3),
    "x over a number": lambda x: x / 3,
    "div": lambda x: torch.div(x, 7),
    "+=": lambda x: (x * 1).__iadd__(x),
    "-=": lambda x: (x * 1).__isub__(F.relu(x)),
    "*=": lambda x: (x * 1).__imul__(x),
    "add_": lambda x: (x * 1).add_(x),
    "sub": lambda x: torch.sub(x, x.flip(2)),
    "sub_": lambda x: (x * 1).sub_(F.relu(x)),
    "mul_": lambda x: (x * 1).mul_(x),
    "cat": lambda x: torch.cat([x, F.relu(x)], dim=1),
    "concat of rows": lambda x: torch.concat([x, F.relu(x)], dim=2),
    "flatten and reshape": lambda x: torch.flatten(x.reshape(1, CHANNELS, -1), 1),
    "view": lambda x: x.view(1, 2, -1),
    "squeeze": lambda x: x.unsqueeze(2).squeeze(2),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "transpose": lambda x: x.transpose(1, 2),
    "rows": lambda x: x[:, 1:3],
    "chunk": lambda x: torch.chunk(x, 2, dim=1)[1],
    "split": lambda x: torch.split(x, 2, dim=1)[0],
    "roll": lambda x: torch.roll(x, 1, dims=3),
    "copies": lambda x: x.contiguous().detach().clone(),
    "F.dropout": lambda x: F.dropout(x, 0.5, training=False),
    "mean of pixels": lambda x: x.mean((2, 3)),
    "mean of channels": lambda x: torch.mean(x, dim=1),
    "F.adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "F.avg_pool2d": lambda x: F.avg_pool2d(x, 2, padding=1),
    "F.max_pool2d": lambda x: F.max_pool2d(x, 2),
    "F.adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "F.interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
}


class Network(nn.Module):
    """One operation, and a parameter that gives the dtype."""

    def __init__(self, operation: nn.Module | Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.operation, self.dtype = operation, nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """The operation's result."""
        return self.operation(x)


def network(name: str) -> Network:
    """The operation in eval mode, with statistics of its own."""
    built = Network(OPERATIONS[name]).eval()
    for module in built.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.uniform_(module.running_mean, -1, 1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.1, 2)  # type: ignore[arg-type]
    return built


GRID = 2.0**16  # bounds and pixels are multiples of 1 / GRID, so that single precision holds them exactly


def images() -> Interval:
    """Random bounds for each channel; the error is at most a quarter of the range."""
    low, width = torch.randn(CHANNELS, dtype=torch.float64), torch.rand(CHANNELS, dtype=torch.float64)
    low, width = (low * GRID).round() / GRID, (width * GRID).ceil() / GRID
    return Interval(low, low + 4 * width, width)


def pairs(span: Interval) -> Iterator[tuple[Tensor, Tensor]]:
    """Images of two networks within the bounds, in single precision; every other image is at the ends everywhere."""
    low, high, error = (bound.view(-1, 1, 1) for bound in (span.low, span.high, span.error))
    for number in range(20):
        share, change = torch.rand(2, 1, CHANNELS, *SIZE, dtype=torch.float64)
        share, change = (share, change) if number % 2 else (share.round(), change.round())
        first = low + ((high - low) * share * GRID).round() / GRID
        second = first + (error * (2 * change - 1) * GRID).trunc() / GRID
        yield first.float(), torch.minimum(torch.maximum(second, low), high).float()


def exceeded(model: Network, bounds: Interval, pairs: Iterator[tuple[Tensor, Tensor]]) -> list[str]:
    """Which bound an image or a pair of images is beyond: exact comparisons, nothing is allowed."""
    found = []
    for images in pairs:
        with torch.no_grad():
            first, second = (model(image).double() for image in images)
        low, high, error = (each_channel(bound, first) for bound in (bounds.low, bounds.high, bounds.error))
        for output in (first, second):
            found += ["low"] if (output < low).any() else []
            found += ["high"] if (output > high).any() else []
        found += ["error"] if ((first - second).abs() > error).any() else []
    return found


def each_channel(bound: Tensor, output: Tensor) -> Tensor:
    """A bound in the shape of an output: by channel, or for all entries."""
    return bound.view(-1, *[1] * (output.dim() - 2)) if len(bound) > 1 else bound


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_stays_within_its_bounds(name: str) -> None:
    model, span = network(name), images()
    found, (bounds,) = follow(model, SIZE, CHANNELS, span, count=1, memory={})
    assert not found.problems
    assert all(bound.isfinite().all() for bound in (bounds.low, bounds.high, bounds.error))
    assert exceeded(model, bounds, pairs(span)) == []


@pytest.mark.parametrize(
    "name", ["identity", "max pool", "x times a number", "x plus a number", "x over a number", "cat", "roll"]
)
def test_half_the_error_and_half_the_range_are_exceeded(name: str) -> None:
    model, span = network(name), images()
    _, (bounds,) = follow(model, SIZE, CHANNELS, span, count=1, memory={})
    quarter = (bounds.high - bounds.low) / 4
    half = Interval(bounds.low + quarter, bounds.high - quarter, bounds.error / 2)
    assert set(exceeded(model, half, pairs(span))) >= {"high", "error"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_equal_images_stay_equal(name: str) -> None:
    span = images()
    equal = Interval(span.low, span.high, 0 * span.error)
    _, (bounds,) = follow(network(name), SIZE, CHANNELS, equal, count=1, memory={})
    assert not bounds.error.any()


def test_every_rule_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a rule adds an operation above."""
    tried: set[str] = set()
    for name, rule in list(functions.RULES.items()):

        def recorded(call: Call, name: str = name, rule: Callable[[Call], Interval] = rule) -> Interval:
            tried.add(name)
            return rule(call)

        monkeypatch.setitem(functions.RULES, name, recorded)
    for name in OPERATIONS:
        follow(network(name), SIZE, CHANNELS, images(), count=1, memory={})
    assert set(functions.RULES) == tried
