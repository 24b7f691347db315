"""Networks around one layer, some of which compute something else than their modules say.

A network's certificate holds for the code that was followed. Each program here does to a network what users do: hooks
scale its input or output, a method is replaced, a tensor's bits are read as other numbers. The bound must hold for what
then runs, or there must be none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

FACTOR = 64.0  # exact in every precision, and far above what a bound leaves room for

Program = Callable[[nn.Module], nn.Module]


def plain(layer: nn.Module) -> nn.Module:
    """The layer and a rectifier."""
    return nn.Sequential(layer, nn.ReLU())


def hook_before(layer: nn.Module) -> nn.Module:
    """A hook of the root scales what it is given."""
    network = plain(layer)
    network.register_forward_pre_hook(lambda module, inputs: (inputs[0] * FACTOR,))
    return network


def hook_after(layer: nn.Module) -> nn.Module:
    """A hook of the root scales what it returns."""
    network = plain(layer)
    network.register_forward_hook(lambda module, inputs, output: output * FACTOR)
    return network


def hook_inside(layer: nn.Module) -> nn.Module:
    """A hook of the rectifier scales what it returns."""
    network = nn.Sequential(layer, rectifier := nn.ReLU())
    rectifier.register_forward_hook(lambda module, inputs, output: output * FACTOR)
    return network


def own_forward(layer: nn.Module) -> nn.Module:
    """The instance has a forward of its own."""
    network = plain(layer)
    theirs = network.forward
    network.forward = lambda x: theirs(x) * FACTOR
    return network


class _Scaling(nn.Sequential):
    """Its class is called in another way."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Scales the output."""
        return super().__call__(*args, **kwargs) * FACTOR


def own_call(layer: nn.Module) -> nn.Module:
    """The root's class overrides ``__call__``."""
    return _Scaling(layer, nn.ReLU())


class _Bits(nn.Module):
    """Reads the bits of floating-point numbers as integers."""

    def forward(self, x: Tensor) -> Tensor:
        """[...] to [...], in the same precision."""
        integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
        return x.view(integers).to(x.dtype)


def bits(layer: nn.Module) -> nn.Module:
    """The output's bits are read as integers."""
    return nn.Sequential(layer, _Bits())


class _View(nn.Module):
    """Writes through a view."""

    def forward(self, x: Tensor) -> Tensor:
        """[batch, ...] to the same, scaled."""
        x = x.clone()
        x.view(-1).mul_(FACTOR)
        return x


def view(layer: nn.Module) -> nn.Module:
    """A tensor is changed through a view of it."""
    return nn.Sequential(layer, _View())


class _Scaled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:
        """The weight, scaled."""
        return weight * FACTOR


def parametrised(layer: nn.Module) -> nn.Module:
    """A normalisation whose weight is computed."""
    norm = nn.BatchNorm2d(int(layer.out_channels), dtype=next(layer.parameters()).dtype)  # type: ignore[arg-type]
    parametrize.register_parametrization(norm, "weight", _Scaled())
    return nn.Sequential(layer, norm.to(next(layer.parameters()).device))


PROGRAMS: dict[str, Program] = {
    "plain": plain,
    "hook before the root": hook_before,
    "hook after the root": hook_after,
    "hook inside": hook_inside,
    "forward of an instance": own_forward,
    "__call__ of a class": own_call,
    "bits read as integers": bits,
    "write through a view": view,
    "parametrised": parametrised,
}
