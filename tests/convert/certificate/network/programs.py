"""Networks around one layer, some of which compute something other than their modules say.

A network's certificate holds for the code that was followed. Each program here does to a network what users do: hooks
scale its input or output, a method is replaced, a tensor's bits are read as other numbers. The bound must hold for what
then runs, or there must be none. Others lay a tensor out in another way before it is normalised or mapped, since torch
then rounds more often in half precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tests.convert.certificate.network.networks import Apply

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


def own_forward(layer: nn.Module) -> nn.Module:
    """The instance has a forward of its own."""
    network = plain(layer)
    theirs = network.forward
    network.forward = lambda x: theirs(x) * FACTOR
    return network


def read_bits(x: Tensor) -> Tensor:
    """The bits of floating-point numbers, read as integers, in the same precision."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.view(integers).to(x.dtype)


def write_through_view(x: Tensor) -> Tensor:
    """Scales a tensor by writing through a view of it."""
    x = x.clone(memory_format=torch.contiguous_format)
    x.view(-1).mul_(FACTOR)
    return x


def parametrised(layer: nn.Module) -> nn.Module:
    """A normalisation whose weight is computed."""
    like = next(layer.parameters())
    norm = nn.BatchNorm2d(int(layer.out_channels), dtype=like.dtype, device=like.device)  # type: ignore[arg-type]
    parametrize.register_parametrization(norm, "weight", Apply(lambda weight: weight * FACTOR))
    return nn.Sequential(layer, norm)


class _Laid(nn.Module):
    """Lays a layer's output out in another way, normalises it, and maps its channels.

    Args:
        layer: The layer, which gives the number of channels, the precision and the device.
        layout: From a tensor to another of the same values, or some of them.
        channels: Number of channels that remain.
        normalised: Whether channels are normalised; otherwise they are mapped, as the last dimension.
    """

    def __init__(self, layer: nn.Module, layout: Callable[[Tensor], Tensor], channels: int, normalised: bool) -> None:
        super().__init__()
        held = {name: torch.linspace(0.5, 2, channels) for name in ("mean", "variance", "weight", "bias")}
        held |= {"maps": torch.linspace(0.5, 2, 3 * channels).view(3, channels), "moves": torch.linspace(0.1, 1, 3)}
        like = next(layer.parameters())
        for name, values in held.items():
            self.register_buffer(name, values.to(like))
        self.layer, self.layout, self.normalised = layer, layout, normalised

    def forward(self, x: Tensor) -> Tensor:
        """[batch, in_channels, *size] to [batch, channels, ...], or with 3 channels behind all axes."""
        x = self.layout(self.layer(x))
        if self.normalised:
            mean, variance, weight, bias = map(self.get_buffer, ("mean", "variance", "weight", "bias"))
            return F.batch_norm(x, mean, variance, weight, bias)
        return F.linear(x.transpose(1, -1), self.get_buffer("maps"), self.get_buffer("moves"))


def _channels_last(x: Tensor) -> Tensor:
    axes = range(2, x.ndim)
    return x.permute(0, *axes, 1).contiguous().permute(0, x.ndim - 1, *(axis - 1 for axis in axes))


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "slices": lambda x: x[..., ::2],
    "chunks": lambda x: x.chunk(2, 1)[0],
    "transposed": lambda x: x.transpose(2, -1),
    "channels last": _channels_last,
}


def laid_out(layout: str, *, normalised: bool) -> Program:
    """The program that lays the layer's output out like this, and normalises or maps it."""

    def program(layer: nn.Module) -> nn.Module:
        channels = int(layer.out_channels)  # type: ignore[arg-type]
        left = -(-channels // 2) if layout == "chunks" else channels
        return _Laid(layer, LAYOUTS[layout], left, normalised)

    return program


PROGRAMS: dict[str, Program] = {
    "plain": plain,
    "hook before the root": hook_before,
    "hook after the root": hook_after,
    "forward of an instance": own_forward,
    "bits read as integers": lambda layer: nn.Sequential(layer, Apply(read_bits)),
    "write through a view": lambda layer: nn.Sequential(layer, Apply(write_through_view)),
    "parametrised": parametrised,
    **{f"{name}, normalised": laid_out(name, normalised=True) for name in LAYOUTS},
    **{f"{name}, mapped": laid_out(name, normalised=False) for name in LAYOUTS},
}
FOLLOWED = frozenset({"plain", *(name for name in PROGRAMS if name.partition(",")[0] in LAYOUTS)})
