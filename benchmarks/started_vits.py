"""Small vision transformers with the same trunk that start in several ways, and a CNN of as many parameters.

The trunk: 8x8 tokens of 144 channels, three pre-norm blocks of nine heads of dimension 16 and an MLP of 288, the mean
of the tokens, one linear layer. What a row changes beyond that is paid for by the width of its MLP, so that all have as
many parameters within 2.5 %.

Sources of the rows:

* ``mimetic``: Trockman & Kolter, Mimetic Initialization of Self-Attention Layers, ICML 2023: W_q^T W_k is what D_h
  singular values keep of 0.7 Z + 0.7 I, W_out W_v = 0.4 Z - 0.4 I, sines and cosines are added. The abstract and a
  summary were read, the four numbers in the code of the next paper; that Z is normal with variance 1 / D is from both.
* ``structured``: Zheng, Li, Saratchandran & Lucey, Structured Initialization for Vision Transformers, NeurIPS 2025
  (arXiv 2505.19985). The abstract and the authors' code (osiriszjq/structured_initialization, vision_transformer.py)
  were read, the paper's text only in part; the code here is our own. A head's wanted scores are 1000 at its tap and
  noise elsewhere, 3 times a truncated normal of deviation 0.6; they are taken back through a pseudo-inverse of rank D_h
  of the positions behind a layer norm, split by singular values, and both factors get the norm 7; positions are
  learned ones of deviation 18 x 0.02; values are mimetic. Inferred: that these numbers, which were chosen for heads of
  64 and 196 tokens, should be tried at other sizes for heads of 16 and 64 tokens. With sines as positions, which an
  earlier version (2404.01139) used, heads of 16 do not find their taps at the start, so this is not tried.
* ``convit``: d'Ascoli et al., ConViT, ICML 2021; its gated attention is written after timm's. Ten of its twelve blocks
  are gated; of three blocks, all or two.
* ``stem``: the tokenizer of Hassani et al., Escaping the Big Data Paradigm with Compact Transformers, 2021: a
  convolution, ReLU and a maximum over 3x3 in place of patches. Their pooling of a sequence is left out, as the trunk is
  the same.
* ``taps``: the claim token-heads of this package.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from vit_trunk import DEPTH, GRID, HEAD_DIM, HEADS, SHIFTS, WIDTH, Attention, Numbers, Shape, ViT, size

from conv2attn.convert.examples.networks import ResidualBlock

FREQUENCIES, PERIOD = 3, 16
"""Waves of an axis, and the tokens of the longest one: more than the grid and the kernel."""
WAVES = 4 * FREQUENCIES  # channels of cosines and sines; the channel of ones and the one of zeros follow
PLACES = WAVES + 2
THIS = "taps"
"""The row that the benchmark is about."""


def waves() -> Tensor:
    """w_f = 2 pi f / period, [F]."""
    return 2 * math.pi / PERIOD * torch.arange(1, FREQUENCIES + 1)


def sines(channels: int) -> Tensor:
    """Positions [64, channels]: cosines and sines of row and column, at our waves (12) or at those of MoCo v3 (144)."""
    axis = torch.arange(GRID, dtype=torch.get_default_dtype())
    count = channels // 4
    frequencies = waves() if channels == WAVES else 10000.0 ** -(torch.arange(count) / count)
    angles = [a.reshape(-1, 1) * frequencies for a in torch.meshgrid(axis, axis, indexing="ij")]
    return torch.stack([torch.cat(angles, 1).cos(), torch.cat(angles, 1).sin()], -1).flatten(1)


def with_sines(shape: Shape, *, channels: int, scale: float, std: float) -> nn.Module:
    """The default, whose positions are sines and cosines in the first channels."""
    network = ViT(shape, std=std)
    with torch.no_grad():
        network.positions.zero_()
        network.positions[:, :channels] = scale * sines(channels)
    return network


def _split(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factors [rows, rank] and [rank, columns] of what the largest singular values keep of a matrix."""
    u, s, v = torch.linalg.svd(matrix)
    root = s[..., :rank].sqrt()
    return u[..., :rank] * root[..., None, :], root[..., :, None] * v[..., :rank, :]


def _mimetic_values(attention: Attention, noise: float, diagonal: float) -> None:
    """W_out W_v = noise * Z - diagonal * I."""
    wanted = noise * torch.randn(WIDTH, WIDTH) / WIDTH**0.5 - diagonal * torch.eye(WIDTH)
    out, value = _split(wanted, WIDTH)
    attention.out.weight.copy_(out)
    attention.qkv.weight[2 * WIDTH :] = value


@torch.no_grad()
def mimetic(shape: Shape, *, noise: float, diagonal: float, values: float, channels: int, scale: float) -> nn.Module:
    """Mimetic initialisation; see the module."""
    network = ViT(shape)
    network.positions.zero_()
    network.positions[:, :channels] = scale * sines(channels)
    for place in range(DEPTH):
        attention = network.attention(place)
        weights = attention.qkv.weight.view(3, HEADS, HEAD_DIM, WIDTH)
        for head in range(HEADS):
            wanted = noise * torch.randn(WIDTH, WIDTH) / WIDTH**0.5 + diagonal * torch.eye(WIDTH)
            query, key = _split(wanted, HEAD_DIM)
            weights[0, head], weights[1, head] = query.T, key
        _mimetic_values(attention, values, values)
    return network


@torch.no_grad()
def structured(shape: Shape, *, norm: float, positions: float, noise: float, tap: float = 1000.0) -> nn.Module:
    """Structured initialisation; see the module.

    Args:
        shape: The images.
        norm: Of a head's query and key matrices.
        positions: Standard deviation of the positions.
        noise: Factor of the noise beside the tap.
        tap: Wanted score at the tap.
    """
    network = ViT(shape, positions=positions)
    places = F.layer_norm(network.positions, (WIDTH,))
    # (P^T P)^+ of rank D_h, times P^T: the pseudo-inverse through the largest singular values of P
    u, s, v = torch.linalg.svd(places, full_matrices=False)
    inverse = v[:HEAD_DIM].T / s[:HEAD_DIM] @ u[:, :HEAD_DIM].T
    for place in range(DEPTH):
        attention = network.attention(place)
        weights = attention.qkv.weight.view(3, HEADS, HEAD_DIM, WIDTH)
        for head, shift in enumerate(SHIFTS):
            target = targets(shift)
            inside = target >= 0
            hit = torch.zeros(GRID**2, GRID**2)
            hit[inside, target[inside]] = 1.0
            drawn = nn.init.trunc_normal_(torch.empty_like(hit), std=0.6)
            query, key = _split(inverse @ (tap * hit + noise * drawn * (1 - hit)) @ inverse.T, HEAD_DIM)
            weights[0, head], weights[1, head] = norm * query.T / query.norm(), norm * key / key.norm()
        _mimetic_values(attention, 0.4, 0.4)
    return network


def convit(shape: Shape, *, strength: float, local: int, std: float) -> nn.Module:
    """ConViT: the first blocks have gated attention that starts at the taps."""
    return ViT(shape, gated=local, strength=strength, std=std)


def stem(shape: Shape, *, inner: int, std: float, positions: float) -> nn.Module:
    """A convolutional tokenizer; with ``inner`` channels it has a second convolution."""
    stride = shape.patch // 2
    convolutions = [
        nn.Conv2d(1, inner or WIDTH, 2 * stride + 1, stride=stride, padding=stride, bias=False),
        *([nn.ReLU(), nn.Conv2d(inner, WIDTH, 3, padding=1, bias=False)] if inner else []),
    ]
    for layer in convolutions:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return ViT(shape, tokenizer=nn.Sequential(*convolutions, nn.ReLU(), pool), std=std, positions=positions)


def cnn(shape: Shape, *, last: int, blocks: int) -> nn.Module:
    """A residual CNN of 16x16 and 8x8 places whose width gives it as many parameters as the trunk has.

    Args:
        shape: The images.
        last: Channels at 8x8 places, as a multiple of those at 16x16.
        blocks: At 8x8 places.
    """
    stride = shape.patch // 2

    def of(width: int) -> nn.Sequential:
        wide = last * width
        return nn.Sequential(
            nn.Conv2d(1, width, 2 * stride + 1, stride=stride, padding=stride, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU()),
            ResidualBlock(width, width),
            ResidualBlock(width, wide, stride=2),
            *(ResidualBlock(wide, wide) for _ in range(blocks - 1)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, shape.classes)),
        )

    with torch.random.fork_rng(), torch.device("meta"):
        wanted = size(ViT(shape))
        widths = range(16, 120)
        above = bisect(widths, wanted, key=lambda width: size(of(width)))
        width = min(widths[above - 1 : above + 1], key=lambda width: abs(size(of(width)) - wanted))
    return of(width)


def targets(shift: tuple[int, int]) -> Tensor:
    """The token at a shift from each token, [64], int64; -1 where it is outside the grid."""
    points = torch.tensor(list(product(range(GRID), repeat=2)))
    target = points + torch.tensor(shift)
    inside = ((target >= 0) & (target < GRID)).all(1)
    return torch.where(inside, target[:, 0] * GRID + target[:, 1], -1)


def turn(shift: tuple[int, int]) -> Tensor:
    """What turns a query's 13 numbers by its tap's shift, [13, 13], and takes -2 F times the channel of ones."""
    found = torch.zeros(WAVES + 1, WAVES + 1)
    for place, (delta, wave) in enumerate(product(shift, waves().tolist())):
        cos, sin, here = math.cos(wave * delta), math.sin(wave * delta), slice(2 * place, 2 * place + 2)
        found[here, here] = torch.tensor([[cos, -sin], [sin, cos]])
    found[-1, -1] = -2.0 * FREQUENCIES
    return found


@torch.no_grad()
def taps(shape: Shape, *, sharpness: float, blocks: int, values: float) -> nn.Module:
    """The claim's heads in the first blocks, whose values are random.

    Args:
        shape: The images.
        sharpness: beta, the factor of what a head reads of a token's position.
        blocks: Blocks that start so.
        values: Standard deviation of the values' weights in them.
    """
    network = ViT(shape)
    network.positions.zero_()
    network.positions[:, :WAVES], network.positions[:, WAVES] = sines(WAVES), 1.0
    for parameter in network.tokenizer.parameters():
        parameter[:PLACES] = 0.0
    read = torch.zeros(WAVES + 1, WIDTH)
    read.fill_diagonal_(sharpness)[:, WAVES + 1] = -sharpness  # minus the channel of zeros: the mean drops out
    for place in range(blocks):
        attention = network.attention(place)
        q, k, v = attention.qkv.weight.view(3, WIDTH, WIDTH)
        nn.init.trunc_normal_(v, std=values)
        v[:, :PLACES] = 0.0
        for head, shift in enumerate(SHIFTS):
            rows = slice(head * HEAD_DIM, head * HEAD_DIM + WAVES + 1)
            for weight, numbers in ((q, turn(shift) @ read), (k, read)):
                weight[head * HEAD_DIM : (head + 1) * HEAD_DIM] = 0.0
                weight[rows] = numbers
        for name in ("attention.out", "down"):  # the block writes nothing to the channels of positions
            network.get_parameter(f"blocks.{place}.{name}.weight")[:PLACES] = 0.0
    return network


@torch.no_grad()
def with_values(attention: Attention, weight: Tensor) -> None:
    """Gives heads that start at the taps the values of a convolution of layer norm's output.

    A head's values are its tap's matrix times a key's content; the output layer adds them up over the heads. What the
    heads pay beside their taps, 1 - share, is the difference from the convolution, times that of two keys' values.

    Args:
        attention: Of a block that ``taps`` started.
        weight: Kernel [out, in, 3, 3], of the first channels behind those of positions; at most 16 come out.
    """
    count, width = weight.shape[:2]
    values = attention.qkv.weight.view(3, HEADS, HEAD_DIM, WIDTH)[2]
    outputs = attention.out.weight.view(WIDTH, HEADS, HEAD_DIM)
    values.zero_()
    outputs.zero_()
    for head, (row, column) in enumerate(SHIFTS):
        values[head, :count, PLACES : PLACES + width] = weight[:, :, row + 1, column + 1]
        outputs[PLACES : PLACES + count, head, :count] = torch.eye(count)


class Shares(NamedTuple):
    """What queries with a tap on the grid pay to it, and the claim's bound, each [any number]."""

    found: Tensor
    bound: Tensor


@torch.no_grad()
def shares(network: nn.Module, images: Tensor, *, sharpness: float, blocks: int) -> Shares:
    """The share of attention at the tap in the first blocks of ``taps``; the bound is that of the start."""
    if not isinstance(network, ViT):
        raise TypeError(f"a {type(network).__name__} has no heads")
    x, found, bounds = network.tokens(images), [], []
    far = torch.arange(GRID, dtype=x.dtype)
    loss = (1 - ((far[:, None] - far)[..., None] * waves().to(x.dtype)).cos()).sum(-1)  # g, [target, key]
    for place in range(blocks):
        block = network.get_submodule(f"blocks.{place}")
        norm, attention = network.get_submodule(f"blocks.{place}.norm1"), network.attention(place)
        deviations = (x.var(-1, correction=0) + nn.LayerNorm(1).eps).sqrt()  # [batch, tokens]
        strength = sharpness**2 / (math.sqrt(HEAD_DIM) * deviations * deviations.amax(1, keepdim=True))
        sums = (-strength[..., None, None] * loss).exp().sum(-1)  # [batch, queries, target's row or column]
        probabilities = attention.probabilities(norm(x))
        for head, shift in enumerate(SHIFTS):
            target = targets(shift)
            (queries,) = (target >= 0).nonzero(as_tuple=True)
            target = target[queries]
            found.append(probabilities[:, head, queries, target].flatten())
            bound = sums[:, queries, target // GRID] * sums[:, queries, target % GRID]
            bounds.append(bound.reciprocal().flatten())
        x = block(x)
    return Shares(torch.cat(found), torch.cat(bounds))


class Row(NamedTuple):
    """A way to start.

    Attributes:
        title: In the tables.
        make: The network for images of a shape and the row's numbers.
        numbers: The numbers that tuning begins with.
        tries: Changes of them that tuning tries, the most promising first.
    """

    title: str
    make: Callable[..., nn.Module]
    numbers: Numbers
    tries: tuple[Numbers, ...]


_LARGER = 0.083  # as Xavier's normal numbers for matrices of 144x144
ROWS = {
    "default": Row(
        "default: truncated normal 0.02, learned positions",
        ViT,
        {"std": 0.02, "positions": 0.02},
        ({"std": _LARGER}, {"positions": 0.2}, {"std": 0.04}, {"positions": 0.5}),
    ),
    "taps": Row(
        "**taps of a 3x3 kernel (token-heads)**",
        taps,
        {"sharpness": 2.0, "blocks": 3, "values": 0.06},
        ({"sharpness": 4.0}, {"blocks": 2}, {"sharpness": 1.5}, {"blocks": 1}),
    ),
    "sines": Row(
        "sines and cosines alone",
        with_sines,
        {"channels": WAVES, "scale": 1.0, "std": 0.02},
        ({"std": _LARGER}, {"channels": WIDTH}, {"scale": 0.5}, {"scale": 2.0}),
    ),
    "mimetic": Row(
        "mimetic initialisation",
        mimetic,
        {"noise": 0.7, "diagonal": 0.7, "values": 0.4, "channels": WIDTH, "scale": 1.0},
        ({"scale": 0.5}, {"channels": WAVES}, {"values": 0.2}, {"noise": 0.4}),
    ),
    "structured": Row(
        "structured initialisation",
        structured,
        {"norm": 7.0, "positions": 0.36, "noise": 3.0},
        ({"positions": 1.0}, {"noise": 0.0}, {"norm": 3.5}, {"norm": 14.0}),
    ),
    "convit": Row(
        "ConViT, gated attention",
        convit,
        {"strength": 1.0, "local": DEPTH, "std": 0.02},
        ({"strength": 2.0}, {"local": DEPTH - 1}, {"std": _LARGER}, {"strength": 0.5}),
    ),
    "stem": Row(
        "a convolutional stem",
        stem,
        {"inner": 0, "std": 0.02, "positions": 0.02},
        ({"std": _LARGER}, {"inner": 32}, {"positions": 0.2}, {"std": 0.04}),
    ),
    "cnn": Row(
        "a residual CNN",
        cnn,
        {"last": 2, "blocks": 2},
        ({"blocks": 3}, {"last": 1}, {"blocks": 1}, {"last": 4}),
    ),
}
"""The rows of the benchmark, by name."""
