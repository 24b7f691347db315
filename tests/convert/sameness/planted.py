"""Three small networks of different families, and faults of ``benchmarks/planted.py`` that are planted in them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.planted import FAULTS as KINDS
from benchmarks.planted import fitting, planted
from conv2attn.convert.examples.networks import load_example
from conv2attn.convert.programs.walk import module_of


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
        self.heads, self.scale = heads, (dim // heads) ** -0.5

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.before(x)
        q, k, v = (
            each(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.queries, self.keys, self.values)
        )
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
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
        found: Tensor = self.last(torch.cat([a, self.up(b)], 1))
        return found


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


@cache
def sound(build: Callable[[], nn.Module]) -> tuple[nn.Module, ExportedProgram, Tensor]:
    """A network without a fault, its program, and an input."""
    network, image = build(), torch.randn(2, *SIZES[build], generator=torch.Generator().manual_seed(5))
    return network, torch.export.export(network, (image,), strict=False), image


class Fault(NamedTuple):
    """A fault in one of the networks.

    Attributes:
        kind: One of ``benchmarks/planted.py``, of the size that people make.
        build: The network.
        place: The module at which the two part, or the operation outside all modules.
        says: A part of what is said of it.
        in_file: The same of an ONNX file, where it is another.
    """

    kind: str
    build: Callable[[], nn.Module]
    place: str
    says: str
    in_file: str | None = None

    @property
    def name(self) -> str:
        """Identifier for a test."""
        return f"{self.kind}, {self.place}".replace(" ", "_")

    def pair(self) -> tuple[nn.Module, ExportedProgram, Tensor]:
        """The network, its program with the fault, and an input."""
        network, program, image = sound(self.build)

        operations = {node.name: node for node in program.graph.nodes}
        (name, *_) = (one for one in fitting(program)[self.kind] if self.place in (one, module_of(operations[one])))
        return network, planted(program, self.kind, name, KINDS[self.kind].natural or 0.0), image


IN_ONE = "B has both in one operation, whose result differs"
FAULTS = [
    Fault("eps of batch norms", mobile, "1", "eps 1e-05 in A, 0.001 in B"),
    Fault("eps of layer norms", attending, "before", "eps 1e-06 in A, 1e-05 in B"),
    Fault("eps of group norms", dense, "norm", "eps 1e-05 in A, 0.0001 in B"),
    Fault("eps outside the root", mobile, "1", "of running_var differ", IN_ONE),
    Fault("variance of batch norm", mobile, "1", "of running_var differ", IN_ONE),
    Fault("one-sided padding", dense, "first", "the map is moved by (1, 1)"),
    Fault("padding mode", dense, "first", "padded with zeros in A, by repetition in B"),
    Fault("dilation", dense, "first", "dilation [1, 1] in A, [2, 2] in B"),
    Fault("transposed kernel", mobile, "5", "elements of weight differ", IN_ONE),
    Fault("transposed kernel", dense, "turned", "elements of weight differ", "B computes it in other operations"),
    Fault("channel order", mobile, "0", "elements of weight differ", IN_ONE),
    Fault("group order", dense, "middle", "rows of weight are in another order"),
    Fault("lost bias", attending, "out", "no bias in B"),
    Fault("one weight", attending, "wide", "1 of 1,024 elements of weight differ"),
    Fault("weights through float16", attending, "head", "elements of weight differ"),
    Fault("a layer in half precision", mobile, "9", "computed in float32 in A, float16 in B"),
    Fault("GELU's form", attending, "gelu", "approximate none in A, tanh in B"),
    Fault("softmax's axis", attending, "softmax", "dim -1 in A, 2 in B", "dim -1 in A, -2 in B"),
    Fault("a scale", attending, "mul", "other 0.353553 in A, 0.359078 in B"),
    Fault("clamp's limit", dense, "act", "max_val 1.5 in A, 1.875 in B"),
    Fault("ceil_mode", dense, "most", "ceil_mode False in A, True in B"),
    Fault("count_include_pad", dense, "pool", "count_include_pad True in A, False in B"),
    Fault("align_corners", dense, "up", "align_corners False in A, True in B"),
    Fault("nearest for bilinear", dense, "up", "upsample bilinear2d in A, upsample nearest2d in B"),
    Fault("swapped branches", dense, "cat", "tensors are in another order"),
]


def opaque(call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same function, out of torch's sight: a black box."""

    def run(x: Tensor) -> Tensor:
        return torch.from_numpy(call(x).numpy().copy())

    return run
