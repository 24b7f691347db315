"""Networks of random operations, and small ones of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, convert_model

SIZE = (7, 6)
CHANNELS = 4


class Function(nn.Module):
    """A network of a function, beside an attention layer of weights 2 and -3 and a counter."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **modules: nn.Module) -> None:
        super().__init__()
        conv = nn.Conv2d(1, 2, 1, bias=False)
        with torch.no_grad():
            conv.weight.copy_(torch.tensor([2.0, -3.0]).view(2, 1, 1, 1))
        self.conv, self.function = conv, function
        self.register_buffer("count", torch.zeros(1))
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Any:
        """Applies the function."""
        return self.function(self, x)


def attention(function: Callable[[Any, Tensor], Any], alpha: float | None = 3.0, **modules: nn.Module) -> nn.Module:
    """The function with attention in place of the convolution."""
    return convert_model(Function(function, **modules).eval(), alpha=alpha).model


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda x: x,
    "columns": lambda x: x[..., 1:],
    "channels": lambda x: x[:, :CHANNELS].contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
    "chunks": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "permuted": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
}


def _norm(draw: random.Random) -> nn.Module:
    kind = draw.choice(("batch", "group", "instance"))
    if kind == "batch":
        norm = nn.BatchNorm2d(CHANNELS)
        norm.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
        norm.running_var.uniform_(0.3, 2)  # type: ignore[union-attr]
        nn.init.uniform_(norm.weight, -2, 2)
        nn.init.uniform_(norm.bias, -1, 1)
        return norm
    return nn.GroupNorm(2, CHANNELS, eps=0.1) if kind == "group" else nn.InstanceNorm2d(CHANNELS, eps=0.1)


class Apply(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function's value."""
        return self.function(x)


def _residual(draw: random.Random) -> nn.Module:
    inner = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=draw.choice((1, 2, 4)))

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            y += x
            return y.relu_()

    return Residual()


def part(draw: random.Random) -> nn.Module:
    """One operation, with its random weights."""
    simple: list[Callable[[Tensor], Tensor]] = [
        torch.relu,
        F.silu,
        F.gelu,
        F.hardswish,
        torch.sigmoid,
        lambda x: x * 0.7 + 0.3,
        lambda x: x / 3.3,
        lambda x: x * x.mean((2, 3), keepdim=True),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        lambda x: F.max_pool2d(x, 3, 1, 1),
        lambda x: F.glu(torch.cat([x, x], 1), 1),
        lambda x: x.softmax(1),
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
        lambda x: F.pad(x, (1, 0, 0, 1)),
        lambda x: x.flip(2) - x,
    ]
    made: list[Callable[[], nn.Module]] = [
        lambda: nn.Conv2d(CHANNELS, CHANNELS, draw.choice((1, 3)), padding=1, stride=draw.choice((1, 2))),
        lambda: nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, stride=2),
        lambda: nn.PReLU(CHANNELS),
        lambda: _norm(draw),
        lambda: _norm(draw),
        lambda: _residual(draw),
        lambda: Apply(draw.choice(simple)),
        lambda: Apply(draw.choice(simple)),
        lambda: Apply(draw.choice(list(LAYOUTS.values()))),
        lambda: Apply(draw.choice(list(LAYOUTS.values()))),
    ]
    return draw.choice(made)()


def random_pair(seed: int) -> tuple[nn.Module, nn.Module, torch.dtype]:
    """A network of random operations, its attention, and their precision."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    parts = [part(draw) for _ in range(draw.randint(1, 5))]
    ends: list[nn.Module] = [
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, padding_mode=draw.choice(("zeros", "reflect")))
    ]
    if draw.random() < 0.5:
        parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 3)]
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16))
    cnn = nn.Sequential(*ends, *parts).eval().to(dtype)
    return cnn, convert_model(cnn, alpha=draw.choice((None, None, 4.0, 16.0))).model, dtype


def layers_of(model: nn.Module) -> list[SelfAttention]:
    """Its attention layers."""
    return [module for module in model.modules() if isinstance(module, SelfAttention)]
