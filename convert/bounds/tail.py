"""The softmax tail: how far soft attention is from the convolution in exact arithmetic.

A head gives its target the weight 1 / sum_k q^(|k - t|^2) >= theta_3(q)^-n, with q = exp(-alpha), because the keys are
some of the points of Z^n (n = 2 for images). The rest, at most tau = 1 - theta_3(q)^-n (claim ``tail-bound``), falls on
pixels that differ from the target by at most osc_c = max - min of channel c. So (claim ``error-bound``)

    tail_o  <=  sum_c osc_c sum_h tau_h |W_{o,c,h}|

That counts every head by itself. Where neighbouring taps have the same sign, what one head loses another gives back,
and the bound is far too large: for a box filter by as much as the kernel is wide. What counts is the kernel's change
under smoothing. Let u_h(z) be the probability that head h gives the point z of Z^n if all of Z^n were keys, minus 1 at
its target, and P_h the probability of the points that the kernel spans. Then (claim ``smoothed-kernel``)

    tail_o  <=  sum_c osc_c / 2 ( sum_z | sum_h W_{o,c,h} u_h(z) |  +  sum_h (1 - P_h) |W_{o,c,h}| )

for every image size and every query: the second sum is what borders can change. For every output and input channel
the smaller of the two counts. ``proofs/claims/certificate/tail.py`` proves the claims; ``proofs/campaign/values.py``
makes inputs that come near the bound.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ..heads.values import LayerValues
from .rounding import OUTWARD, SMALLEST_ALPHA, gamma, moment, powers
from .underflow import magnitudes

_FLATTEST = 0.25  # below, a head reaches over so many pixels that the kernel's change is not worth its sum
_BEYOND = 45.0  # the kernel's change is summed as far as exp(-45) of what a neighbour gets
_TABLE = 2**23  # entries of the heads' changes, 67 MB; beyond, a head counts by itself
_ENTRIES = 2**22  # numbers of the kernel's change in memory at one time
_UNDERFLOW = 2.0**-1000  # exceeds the dropped rest of a sum over all integers; a normal number

_Points = tuple[tuple[int, ...], ...]


def tail_fraction(alpha: float, *, axes: int = 2) -> float:
    """tau = 1 - theta_3(exp(-alpha))^-n: most of a head's attention that can miss its target, for any image size.

    Args:
        alpha: Sharpness.
        axes: n, the number of axes.
    """
    if alpha < SMALLEST_ALPHA:
        return 1.0
    rest = 2 * math.fsum(powers(alpha, 0)) + _UNDERFLOW
    missed = -math.expm1(-axes * math.log1p(rest))
    return min(missed * OUTWARD, 1.0)


def tail_per_unit(layer: LayerValues) -> float:
    """The softmax tail for an input whose channels vary by at most 1, padding included."""
    varies = torch.ones(layer.spec.in_channels, dtype=torch.float64, device="cpu")
    return float(softmax_tail(layer, varies).max()) * OUTWARD


def softmax_tail(layer: LayerValues, varies: Tensor) -> Tensor:
    """Bound on |Attention - Conv| in exact arithmetic: [out_channels], in double precision.

    Args:
        layer: A layer with its heads at the kernel's taps.
        varies: Variation (max - min) of each input channel, padding included: [in_channels], in double precision.
    """
    fractions = {alpha: tail_fraction(alpha, axes=layer.spec.axes) for alpha in set(layer.regime.alpha)}
    tau = [fractions[alpha] for alpha in layer.regime.alpha]
    if layer.spec.num_heads > 1 and not layer.regime.is_exact and _has_room(layer):
        return _by_kernel(layer, varies, tau)
    shares = torch.tensor(tau, dtype=torch.float64, device="cpu").view(layer.spec.kernel_size)
    (tail,) = absolute_products(layer, magnitudes(layer.kernel) * shares, varies)
    return tail


def counts_heads_alone(layer: LayerValues) -> bool:
    """Whether the sharper bound for several heads would take too much room, so that each head counts alone."""
    return layer.spec.num_heads > 1 and not layer.regime.is_exact and not _has_room(layer)


def _has_room(layer: LayerValues) -> bool:
    """Whether the heads' reach and the kernel are small enough for the sum over every point they touch."""
    if min(layer.regime.alpha) < _FLATTEST:
        return False
    points = math.prod(end + 2 * _margin(layer.regime.alpha) + 1 for end in layer.spec.reach)
    return layer.spec.num_heads * points <= _TABLE


def _margin(alphas: tuple[float, ...]) -> int:
    """Number of pixels beyond the kernel over which its change is summed."""
    return math.ceil(math.sqrt(1 + _BEYOND / min(alphas)))


def absolute_products(layer: LayerValues, weight: Tensor, *per_input: Tensor) -> tuple[Tensor, ...]:
    """sum_{c,h} |W_{o,c,h}| r_c for several r, each [out_channels], rounded up, in double precision.

    The channels' ranges may be of very different size, so nothing is scaled. A product that underflows, or an operand
    that is read as 0, loses at most the smallest normal number times 1 + r_c.

    Args:
        layer: The layer.
        weight: [out_channels, in_channels / groups, *kernel_size], of any precision.
        per_input: Non-negative numbers r, [in_channels] each, in double precision.
    """
    groups, limits = layer.spec.groups, torch.finfo(torch.float64)
    absolute = torch.unflatten(magnitudes(weight).flatten(1), 0, (groups, -1))
    vectors = torch.stack(per_input, dim=1).repeat_interleave(layer.spec.num_heads, dim=0)
    vectors = torch.unflatten(vectors, 0, (groups, -1))
    lost = torch.where(vectors > 0, 2 * limits.smallest_normal * (1 + vectors), 0.0).sum(1, keepdim=True)
    products = absolute @ vectors * (1 + gamma(absolute.shape[-1] + 2, limits.eps / 2)) + lost
    return tuple(products.flatten(0, 1).unbind(1))


def _by_kernel(layer: LayerValues, varies: Tensor, tau: list[float]) -> Tensor:
    """The smaller of both bounds for each output and input channel, summed: [out_channels]."""
    spec = layer.spec
    targets = tuple(
        tuple(start + offset for start, offset in zip(spec.middle, tap, strict=True)) for tap in spec.tap_offsets
    )
    change, beyond = _head_changes(layer.regime.alpha, targets, spec.reach)
    shares = _outside_of_the_kernel(layer.regime.alpha, targets, spec.reach)
    outside, each = (torch.tensor(part, dtype=torch.float64, device="cpu") for part in (shares, tau))
    per_group = varies.view(spec.groups, 1, -1)
    lost = 2 * torch.finfo(torch.float64).smallest_normal * spec.num_heads * (1 + change.shape[1])  # by underflow
    parts = []
    at_once = _ENTRIES // change.shape[1]  # at least 1, as two heads or more fit the table
    for weight in torch.split(layer.kernel.detach().flatten(2).flatten(0, 1), at_once):
        heads, largest = weight.cpu().double(), magnitudes(weight)
        alone = largest @ each + lost
        together = ((heads @ change).abs().sum(1) + largest @ (outside + beyond)) / 2 + alone * (OUTWARD**2 - 1)
        together = together + 2 * (largest - heads.abs()).sum(1) + lost  # for numbers that may be read as 0
        parts.append(torch.minimum(alone, together))
    channels = torch.cat(parts).view(spec.groups, -1, per_group.shape[-1])
    return (channels * per_group).sum(2).flatten()


@lru_cache(maxsize=16)
def _head_changes(alphas: tuple[float, ...], targets: _Points, span: tuple[int, ...]) -> tuple[Tensor, float]:
    """u_h(z) for the points z that matter, [num_heads, points], and a bound on the sum of u_h over all others.

    The result is cached, since a network has many layers with the same kernel and a curve has many alphas.

    Args:
        alphas: Sharpness of each head.
        targets: Each head's target, from the kernel's first tap.
        span: Pixels from the kernel's first tap to its last, along each axis.
    """
    margin = _margin(alphas)
    changes = []
    for alpha, target in zip(alphas, targets, strict=True):
        change = torch.ones((), dtype=torch.float64, device="cpu")
        for axis in zip(target, span, strict=True):
            change = change.unsqueeze(-1) * _axis_probabilities(alpha, *axis, margin)
        change[tuple(margin + coordinate for coordinate in target)] = -tail_fraction(alpha, axes=len(span))
        changes.append(change.flatten())
    return torch.stack(changes), max(2 * len(span) * _beyond(alpha, margin) * OUTWARD for alpha in alphas)


def _axis_probabilities(alpha: float, target: int, span: int, margin: int) -> Tensor:
    """exp(-alpha (z - target)^2) / theta_3 for z = -margin, ..., span + margin."""
    points = torch.arange(-margin, span + margin + 1, dtype=torch.float64, device="cpu")
    return torch.exp(-alpha * (points - target).square()) / moment(alpha, 0)


@lru_cache(maxsize=16)
def _outside_of_the_kernel(alphas: tuple[float, ...], targets: _Points, span: tuple[int, ...]) -> tuple[float, ...]:
    """1 - P_h: the weight that head h gives to points outside the kernel, if all of Z^n were keys."""
    shares = []
    for alpha, target in zip(alphas, targets, strict=True):
        outside = 0.0
        for first, last in zip(target, span, strict=True):
            beside = (_beyond(alpha, first) + _beyond(alpha, last - first)) / moment(alpha, 0)
            outside += beside - outside * beside
        shares.append(outside)
    return tuple(shares)


def _beyond(alpha: float, distance: int) -> float:
    """sum_{n > distance} exp(-alpha n^2), rounded up."""
    return math.fsum(term for n, term in enumerate(powers(alpha, 0), start=1) if n > distance) * OUTWARD + _UNDERFLOW
