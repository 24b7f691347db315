"""Networks of a few layers with constants that people have shipped wrong, and the same written out otherwise.

The cases are those of public threads (huggingface/transformers, pytorch-image-models and others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.sameness.same import Reference
from conv2attn.convert.sameness.verdict import Sameness


def spread(network: nn.Module) -> nn.Module:
    """The network in eval mode, with norms whose weights and statistics are not 1: there, an eps shows."""
    with torch.no_grad():
        for module in network.modules():
            for name, one in module.named_parameters(recurse=False):
                if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d | Norm):
                    one.copy_(1 + 0.2 * torch.randn(one.shape) if name == "weight" else 0.2 * torch.randn(one.shape))
            if isinstance(module, nn.BatchNorm2d):
                module.get_buffer("running_var").uniform_(0.05, 3.0)
                module.get_buffer("running_mean").normal_()
    return network.eval()


class Norm(nn.Module):
    """Layer norm over channels, as torch's operation or written out."""

    def __init__(self, dim: int, *, eps: float = 1e-6, how: str = "torch", channels: int = -1) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.eps, self.how, self.channels = eps, how, channels

    def forward(self, x: Tensor) -> Tensor:
        """[batch, ..., dim], or [batch, dim, height, width] where channels are 1."""
        if self.how == "torch":
            if self.channels == 1:
                x = x.permute(0, 2, 3, 1)
            y = F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
            return y.permute(0, 3, 1, 2) if self.channels == 1 else y
        mean = x.mean(self.channels, keepdim=True)
        variance = x.var(self.channels, keepdim=True, correction=1 if self.how == "bessel" else 0)
        root = variance.sqrt() + self.eps if self.how == "outside" else (variance + self.eps).sqrt()
        shape = (-1, 1, 1) if self.channels == 1 else (-1,)
        return (x - mean) / root * self.weight.view(shape) + self.bias.view(shape)


class Channels(nn.Module):
    """Convolutions with norms over channels: [batch, 3, 16, 16] to [batch, 5]."""

    def __init__(self, how: str = "torch") -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 4, 4), Norm(16, how=how, channels=1))
        self.depth, self.norm = nn.Conv2d(16, 16, 3, padding=1, groups=16), Norm(16, how=how, channels=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """The network."""
        x = self.stem(x)
        found: Tensor = self.head((x + F.relu(self.norm(self.depth(x)))).mean((2, 3)))
        return found


class Blocks(nn.Module):
    """Residual blocks with norms and an activation: [batch, 7, 16] to [batch, 7, 5]."""

    def __init__(
        self, *, how: str = "torch", eps: float = 1e-5, act: Callable[[Tensor], Tensor] = F.gelu, share: float = 1.0
    ) -> None:
        super().__init__()
        self.norm1, self.fc1, self.fc2 = Norm(16, how=how, eps=eps), nn.Linear(16, 32), nn.Linear(32, 16)
        self.act, self.norm2, self.head = Act(act), Norm(16, how=how, eps=eps), nn.Linear(16, 5)
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """The network."""
        x = x + self.share * self.fc2(self.act(self.fc1(self.norm1(x))))
        found: Tensor = self.head(self.norm2(x))
        return found


class Act(nn.Module):
    """An activation with a name."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function."""
        return self.function(x)


def by_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def as_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


class Rotary(nn.Module):
    """Attention with rotary positions, of neighbours or of halves: [batch, 9, 32] to the same."""

    frequencies: Tensor

    def __init__(self, pairs: str = "neighbours", *, is_cut: bool = False) -> None:
        super().__init__()
        self.register_buffer("frequencies", 10000 ** (-torch.arange(4) / 4))
        self.is_cut = is_cut
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32, bias=False) for _ in range(4))
        self.pairs = pairs

    def rotated(self, x: Tensor) -> Tensor:
        """[batch, heads, tokens, 8], rotated."""
        frequencies = self.frequencies.bfloat16().float() if self.is_cut else self.frequencies
        angle = torch.arange(x.shape[-2])[:, None] * frequencies
        cos, sin = angle.cos(), angle.sin()
        if self.pairs == "neighbours":
            a, b = x[..., 0::2], x[..., 1::2]
            turned: Tensor = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
            return turned
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x: Tensor) -> Tensor:
        """The layer."""
        q, k, v = (each(x).unflatten(-1, (4, 8)).transpose(1, 2) for each in (self.q, self.k, self.v))
        found = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v)
        result: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return result


class Scaled(nn.Module):
    """Attention whose scale is its own, or that of the queries: [batch, tokens, 16] to [batch, 2, tokens, 8]."""

    def __init__(self, scale: float, of_queries: float = 1.0) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.scale, self.of_queries = scale, of_queries

    def forward(self, x: Tensor) -> Tensor:
        """The attention."""
        q, k, v = (each(x).unflatten(-1, (2, 8)).transpose(1, 2) for each in (self.q, self.k, self.v))
        found: Tensor = F.scaled_dot_product_attention(q * self.of_queries, k, v, scale=self.scale)
        return found


def in_halves(weight: Tensor) -> Tensor:
    """Rows of neighbours, in halves of each head of 8."""
    found: Tensor = weight.unflatten(0, (-1, 4, 2)).transpose(1, 2).flatten(0, 2).clone()
    return found


def permuted(network: nn.Module, *names: str) -> nn.Module:
    with torch.no_grad():
        for name in names:
            layer = network.get_submodule(name)
            layer.weight.copy_(in_halves(layer.weight))  # type: ignore[operator,arg-type]
    return network


class Stem(nn.Module):
    """A stem of stride 2, with padding as torch's or as `SAME`: [batch, 3, 32, 40] to [batch, 5]."""

    def __init__(self, pads: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3 if pads is None else 0, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.head, self.pads = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5), pads

    def forward(self, x: Tensor) -> Tensor:
        """The network."""
        x = F.relu(self.bn1(self.conv1(x if self.pads is None else F.pad(x, self.pads))))
        found: Tensor = self.head(F.relu(self.conv2(x)).mean((2, 3)))
        return found


class Positions(nn.Module):
    """Tokens with positions of a learned map, resized: [batch, 3, 12, 12] to [batch, 36, 5]."""

    def __init__(self, *, coefficient: float = -0.75, shortcut: bool = False) -> None:
        super().__init__()
        self.patch, self.grid = nn.Conv2d(3, 16, 2, 2), nn.Parameter(torch.randn(1, 16, 4, 4))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)
        self.coefficient, self.shortcut = coefficient, shortcut
        self.register_buffer("matrix", cubic(4, 6, coefficient), persistent=False)
        self.matrix: Tensor

    def positions(self) -> Tensor:
        """[1, 16, 6, 6]."""
        if self.coefficient == -0.75:
            return F.interpolate(self.grid, size=(6, 6), mode="bicubic", align_corners=False)
        return self.matrix @ self.grid @ self.matrix.T

    def forward(self, x: Tensor) -> Tensor:
        """The network."""
        x = self.patch(x)
        x = x + (x if self.shortcut else self.positions())
        found: Tensor = self.head(self.norm(x.flatten(2).transpose(1, 2)))
        return found


def cubic(n: int, m: int, a: float) -> Tensor:
    """Keys' interpolation of n pixels to m with coefficient a: [m, n]."""
    found = torch.zeros(m, n)
    for row in range(m):
        at = (row + 0.5) * n / m - 0.5
        base = int(at // 1)
        for pixel in range(base - 1, base + 3):
            d = abs(at - pixel)
            near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            found[row, min(max(pixel, 0), n - 1)] += near if d <= 1 else far
    return found


class Options(nn.Module):
    """A pool, a norm, a sum and a norm over channels, with options: [batch, 3, 10, 14] to [batch, 5]."""

    def __init__(
        self,
        *,
        eps: float = 1e-6,
        alpha: float = 10,
        divisor: int | None = None,
        last: float = 1e-12,
        form: str = "tanh",
    ) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8, eps=eps)
        self.pool = nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=divisor)
        self.act, self.last, self.head = nn.GELU(approximate=form), nn.LayerNorm(8, eps=last), nn.Linear(8, 5)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """The network."""
        y = 0.02 * self.first(x)
        y = torch.add(self.norm(y), y, alpha=self.alpha)
        found: Tensor = self.head(self.last(self.act(self.pool(y)).mean((2, 3))))
        return found


class Case(NamedTuple):
    """A pair of networks.

    Attributes:
        a: A, built from a seed.
        b: B, which gets A's tensors.
        shape: Of the input.
        place: What is named first; "" where nothing is.
        says: Words of the cause.
        all: Everything that may be named.
        change: What is done to B behind this.
    """

    a: Callable[[], nn.Module]
    b: Callable[[], nn.Module]
    shape: tuple[int, ...]
    place: str
    says: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    change: Callable[[nn.Module], object] = lambda network: network

    def pair(self) -> tuple[nn.Module, nn.Module, Tensor]:
        """A, B and an input."""
        torch.manual_seed(0)
        a = spread(self.a())
        b = self.b().eval()
        b.load_state_dict(a.state_dict())
        self.change(b)
        return a, b, torch.randn(2, *self.shape)


def with_weights_moved(network: nn.Module) -> None:
    """Scales the norm, and divides the columns of what reads it: another network of the same function."""
    with torch.no_grad():
        scale = torch.rand(16) + 0.6
        for one in network.get_submodule("norm1").parameters():
            one.mul_(scale)
        network.get_submodule("fc1").weight.div_(scale)  # type: ignore[operator]


def with_plain_rows(network: nn.Module) -> None:
    """Puts the rows of `k` back to the order for neighbours."""
    weight = network.get_parameter("k.weight").data
    weight.copy_(weight.unflatten(0, (-1, 2, 4)).transpose(1, 2).flatten(0, 2).clone())


IMAGE = (3, 10, 14)
NORMS, OWN = ("norm1", "norm2"), ("stem.1", "norm")
CASES = {
    "R2": Case(Channels, lambda: Channels("bessel"), (3, 16, 16), "stem.1", ("correction 0 in A, 1 in B", "norm"), OWN),
    "R2, both written out": Case(
        lambda: Channels("written"),
        lambda: Channels("bessel"),
        (3, 16, 16),
        "stem.1",
        ("correction 0 in A, 1 in B",),
        OWN,
    ),
    "R4": Case(
        Blocks, lambda: Blocks(how="outside"), (7, 16), "norm1", ("inside the root in A", "outside it in B"), NORMS
    ),
    "R4, both written out": Case(
        lambda: Blocks(how="written"),
        lambda: Blocks(how="outside"),
        (7, 16),
        "norm1",
        ("inside the root in A", "outside it in B"),
        NORMS,
    ),
    "another eps, written out": Case(
        Blocks, lambda: Blocks(how="written", eps=1e-3), (7, 16), "norm1", ("eps 1e-05", "0.001"), NORMS
    ),
    "R3, written out": Case(
        Blocks, lambda: Blocks(act=by_tanh), (7, 16), "act", ("GELU exact in A, GELU by tanh in B",)
    ),
    "R10": Case(Blocks, lambda: Blocks(act=quick), (7, 16), "act", ("GELU exact in A, x sigmoid(1.702 x) in B",)),
    "N4, not permuted": Case(
        Rotary,
        lambda: Rotary("halves"),
        (9, 32),
        "flatten",
        ("neighbours in A, halves in B", "RoPE"),
        ("flatten", "flatten_1"),
    ),
    "N4, one not permuted": Case(
        lambda: permuted(Rotary("halves"), "q", "k"),
        lambda: Rotary("halves"),
        (9, 32),
        "k",
        ("rows of weight are permuted as for the other RoPE layout",),
        ("k",),
        with_plain_rows,
    ),
    "R7": Case(Positions, lambda: Positions(shortcut=True), (3, 12, 12), "add", ("other", "self again in B")),
    "R9": Case(Stem, lambda: Stem((2, 3, 2, 3)), (3, 32, 40), "conv1", ("moved by (1, 1)",)),
    "R11": Case(
        Positions,
        lambda: Positions(coefficient=-0.5),
        (3, 12, 12),
        "upsample_bicubic2d",
        ("coefficient -0.75 in A, -0.5 in B",),
    ),
    "R1": Case(Options, lambda: Options(eps=1e-5), IMAGE, "norm", ("eps 1e-06 in A, 1e-05 in B",)),
    "R3": Case(Options, lambda: Options(form="none"), IMAGE, "act", ("approximate tanh in A, none in B",)),
    "R5": Case(Rotary, lambda: Rotary(is_cut=True), (9, 32), "mul", ("a cast to bfloat16",), ("mul", "mul_5")),
    "R6": Case(Options, lambda: Options(divisor=9), IMAGE, "pool", ("divisor_override",)),
    "R8": Case(Options, lambda: Options(last=1e-5), IMAGE, "last", ("eps 1e-12 in A, 1e-05 in B",)),
    "R12": Case(Options, lambda: Options(alpha=1), IMAGE, "add", ("alpha 10 in A, 1 in B",)),
}
"""Wrong networks: those of the public threads R1 to R12, and N4 where it is wrong."""

HONEST = {
    "N4": Case(Rotary, lambda: Rotary("halves"), (9, 32), "", change=lambda network: permuted(network, "q", "k")),
    "N7": Case(lambda: Blocks(act=as_tanh), lambda: Blocks(act=by_tanh), (7, 16), ""),
    "a norm written out in B": Case(Blocks, lambda: Blocks(how="written"), (7, 16), ""),
    "a norm written out in A": Case(lambda: Blocks(how="written"), Blocks, (7, 16), ""),
    "a norm over channels": Case(Channels, lambda: Channels("written"), (3, 16, 16), ""),
    "padding before the convolution": Case(Stem, lambda: Stem((3, 3, 3, 3)), (3, 32, 40), ""),
    "weights that cancel": Case(Blocks, Blocks, (7, 16), "", change=with_weights_moved),
}
"""The same networks, written otherwise."""


def compared(a: nn.Module, b: object, x: Tensor) -> Sameness:
    """The verdict, without proofs."""
    return Reference(a, x, is_bounded=False).compare(b)
