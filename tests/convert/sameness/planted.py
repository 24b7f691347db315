"""Three small networks of different families, and faults that are planted in them.

Each fault changes a copy of a network, and says at which module the two part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.examples.networks import load_example


def rounded_once(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A black box: the network in float64, whose outputs alone are rounded; other bits than float32's everywhere."""
    wide = copy.deepcopy(network).double()

    def call(x: Tensor) -> Tensor:
        found: Tensor = wide(x.double()).float()
        return found

    return call


class Attending(nn.Module):
    """A transformer's block between patches and classes: [batch, 3, 12, 16] to [batch, 6]."""

    def __init__(self, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, stride=4)
        self.before = nn.LayerNorm(dim, eps=1e-6)
        self.queries, self.keys, self.values = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.after = nn.LayerNorm(dim, eps=1e-6)
        self.wide, self.gelu, self.narrow = nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        self.head = nn.Linear(dim, 6)
        self.heads, self.scale, self.axis = heads, (dim // heads) ** -0.5, -1

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.before(x)
        q, k, v = (
            each(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.queries, self.keys, self.values)
        )
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(self.axis)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + self.narrow(self.gelu(self.wide(self.after(x))))
        found: Tensor = self.head(x.mean(1))
        return found


class Dense(nn.Module):
    """A U-Net with group norm: [batch, 3, 12, 20] to maps [batch, 4, 12, 20]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.act = nn.Hardtanh(-1.0, 1.5)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.most = nn.MaxPool2d(3, stride=2, ceil_mode=False)
        self.middle = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2, padding_mode="reflect")
        self.up = nn.Upsample(size=(12, 20), mode="bilinear", align_corners=False)
        self.last = nn.Conv2d(16, 4, 3, padding=1)
        self.turned = nn.ConvTranspose2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.act(self.norm(self.first(x)))
        b = self.middle(self.pool(a))
        b = b + F.interpolate(self.most(a), size=b.shape[2:], mode="nearest")
        b = F.silu(self.turned(b))
        found: Tensor = self.last(torch.cat(self.parts(a, self.up(b)), 1))
        return found

    def parts(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """What is put together, in its order."""
        return [a, b]


class Hiding(nn.Module):
    """A block whose branch adds so little that its faults are below the rounding of the sum."""

    def __init__(self, share: float = 1e-4) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        found: Tensor = y + self.share * self.last(self.norm(y))
        return found


def mobile() -> nn.Module:
    return load_example("mobile")


def attending() -> nn.Module:
    torch.manual_seed(3)
    return Attending().eval()


def dense() -> nn.Module:
    torch.manual_seed(4)
    return Dense().eval()


SIZES = {mobile: (3, 32, 40), attending: (3, 12, 16), dense: (3, 12, 20)}


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: Its kind.
        build: The network.
        plant: Changes a copy.
        place: The module at which the two part, or the operation outside all modules.
        says: A part of what is said of it.
    """

    name: str
    build: Callable[[], nn.Module]
    plant: Callable[[nn.Module], object]
    place: str
    says: str = ""

    def pair(self) -> tuple[nn.Module, nn.Module, Tensor]:
        """The network, the faulty copy, and an input."""
        network = self.build()
        faulty = copy.deepcopy(network)
        self.plant(faulty)
        image = torch.randn(2, *SIZES[self.build], generator=torch.Generator().manual_seed(5))
        return network, faulty.eval(), image


def _set(path: str, **values: object) -> Callable[[nn.Module], None]:
    def plant(network: nn.Module) -> None:
        for name, value in values.items():
            setattr(network.get_submodule(path), name, value)

    return plant


def _weight(path: str, change: Callable[[Tensor], Tensor], name: str = "weight") -> Callable[[nn.Module], None]:
    def plant(network: nn.Module) -> None:
        tensor = getattr(network.get_submodule(path), name)
        tensor.data = change(tensor.data.clone())

    return plant


def _replace(path: str, made: Callable[[nn.Module], nn.Module]) -> Callable[[nn.Module], None]:
    return lambda network: network.set_submodule(path, made(network.get_submodule(path)))


def _one_number(weight: Tensor) -> Tensor:
    weight.view(-1)[0] += weight.abs().max() * 1e-2
    return weight


class _Half(nn.Module):
    """A layer in half precision between others in single precision."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x.bfloat16()).float()
        return found


class _InsideRoot(nn.Module):
    """A layer norm whose eps stands beside the root, not under it."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        assert isinstance(norm, nn.LayerNorm)
        self.weight, self.bias, self.eps = norm.weight, norm.bias, 1e-4

    def forward(self, x: Tensor) -> Tensor:
        centered = x - x.mean(-1, keepdim=True)
        return centered / (centered.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.weight + self.bias


class _OneSided(nn.Module):
    """A convolution that pads below and at the right alone."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        assert isinstance(conv, nn.Conv2d)
        self.conv = copy.deepcopy(conv)
        self.conv.padding = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.conv(F.pad(x, (0, 2, 0, 2)))
        return found


def _swapped(network: nn.Module) -> None:
    vars(network)["parts"] = lambda a, b: [b, a]


FAULTS = [
    Fault("batch norm's eps", mobile, _set("1", eps=1e-3), "1", "eps 1e-05 in A, 0.001 in B"),
    Fault("layer norm's eps", attending, _set("before", eps=1e-5), "before", "eps 1e-06 in A, 1e-05 in B"),
    Fault("group norm's eps", dense, _set("norm", eps=1e-3), "norm", "eps 1e-05 in A, 0.001 in B"),
    Fault("one-sided padding", dense, _replace("first", _OneSided), "first"),
    Fault("align_corners", dense, _set("up", align_corners=True), "up", "align_corners False in A, True in B"),
    Fault("GELU's form", attending, _set("gelu", approximate="tanh"), "gelu", "approximate none in A, tanh in B"),
    Fault("a transposed kernel", mobile, _weight("5", lambda w: w.mT.contiguous()), "5", "elements of weight differ"),
    Fault("channel order", mobile, _weight("0", lambda w: w.flip(1)), "0", "elements of weight differ"),
    Fault("a lost bias", attending, _set("out", bias=None), "out", "no bias in B"),
    Fault("softmax's axis", attending, _set("", axis=-2), "softmax", "dim -1 in A, -2 in B"),
    Fault("a scale off by one", attending, _set("", scale=7**-0.5), "mul", "other 0.353553 in A, 0.377964 in B"),
    Fault("a half-precision layer", mobile, _replace("9", _Half), "9", "computed in float32 in A, bfloat16 in B"),
    Fault("ceil_mode", dense, _set("most", ceil_mode=True), "most"),
    Fault(
        "count_include_pad",
        dense,
        _set("pool", count_include_pad=False),
        "pool",
        "count_include_pad True in A, False in B",
    ),
    Fault("dilation", dense, _set("middle", dilation=(1, 1), _reversed_padding_repeated_twice=[1] * 4), "middle"),
    Fault("group order", dense, _weight("middle", lambda w: w.roll(4, 0)), "middle", "elements of weight differ"),
    Fault("swapped branches", dense, _swapped, "cat", "tensors are in another order"),
    Fault("clamp limits", dense, _set("act", max_val=1.501), "act", "max_val 1.5 in A, 1.501 in B"),
    Fault("interpolation", dense, _set("up", mode="bicubic"), "up", "bilinear"),
    Fault("eps beside the root", attending, _replace("after", _InsideRoot), "after"),
    Fault("statistics", mobile, _weight("1", lambda v: v * 1.01, "running_var"), "1", "of running_var differ"),
    Fault(
        "padding mode", dense, _set("middle", padding_mode="replicate"), "middle", "mode reflect in A, replicate in B"
    ),
    Fault("one weight", attending, _weight("wide", _one_number), "wide", "1 of 1,024 elements of weight differ"),
    Fault(
        "rounded weights", attending, _weight("head", lambda w: w.half().float()), "head", "elements of weight differ"
    ),
    Fault("a transposed convolution", dense, _weight("turned", lambda w: w.flip(2, 3)), "turned", "of weight differ"),
]
