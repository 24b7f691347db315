r"""Bounds on the 2-norms of linear maps, from above and with everything that computing them rounds.

A convolution of stride 1 with zeros around its image is a block of the same convolution of Z^n, whose norm is the
supremum over all frequencies w of the norm of

    F(w)  =  sum_m W_m e^(i m.w),      a matrix [out_channels, in_channels].

u* F(w) v is a trigonometric polynomial p in each w_a, of degree d = (K_a - 1) / 2 about its middle. From where |p| is
largest, |p(w + t)| >= cos(d t) max |p| for d |t| <= pi / 2 (M. Riesz, 1914), and M equidistant points leave
|t| <= pi / M. So the supremum is at most the largest norm on a grid, divided by cos(pi d / M) for each axis. Dilation
only changes w.

With a stride s along each of n axes, every frequency of the output comes from s^n of the input, and the norm's square
is the supremum of the norm of

    G(w)  =  s^-n sum_j F(w + 2 pi j / s) F(w + 2 pi j / s)*,

where u* G u has degree floor((K - 1) / s) in s w. The claim ``difference-norms``
(``proofs/claims/certificate/difference_norms.py``) derives both.

The largest eigenvalue of a Hermitian matrix G is at most t if Cholesky's algorithm ends on t I - G (Rump, 2006), up to
what the algorithm and G's own sums round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from ....bounds.rounding import OUTWARD, gamma

_ENTRIES = 2**19  # numbers of the matrices in memory at one time
_FINE = (2**12, 16), (2**15, 8)  # points of the grid for each degree, by the largest matrix that gets so many
_COARSE = 4  # for larger ones; all but the smallest kind are computed in single precision
_UNITS = {torch.float32: 2.0**-22, torch.float64: 2.0**-51}  # 4 u: more than complex products and sums err by
_WAVE = 32  # times that unit: the error of a product of sines and cosines along three axes


def convolution_norm(kernel: Tensor, *, groups: int = 1, stride: Sequence[int] = (), dilation: int = 1) -> float:
    """Bound on the 2-norm of a convolution of images of any size with zeros around them.

    Args:
        kernel: [out_channels, in_channels / groups, *kernel_size].
        groups: Blocks of channels that do not mix.
        stride: Along each axis; 1 where none is given.
        dilation: The largest of the dilations; beyond 1, the bound is that of stride 1, which holds for every stride.

    Returns:
        The bound; infinite for weights that are not finite.
    """
    sizes = kernel.shape[2:]
    steps = [step if size > 1 and dilation == 1 else 1 for size, step in zip(sizes, stride or [1] * 3, strict=False)]
    taps = kernel.detach().double().cpu().unflatten(0, (groups, -1)).flatten(3)
    largest = float(taps.abs().max()) if taps.numel() else 0.0
    if not 0 < largest < math.inf:
        return largest if largest == 0 else math.inf
    exponent, entries = math.frexp(largest)[1], taps[0, ..., 0].numel()
    fine = next((count for most, count in _FINE if entries <= most), _COARSE)
    is_strided, points, sharpness = max(steps) > 1, [], 1.0
    for size, step in zip(sizes, steps, strict=True):
        degree = (size - 1) // step if is_strided else (size - 1) / 2
        count = 2 ** math.ceil(math.log2(fine * degree * (1 if is_strided else 2))) if degree else 1
        closest = math.cos(math.pi * degree / count)
        sharpness *= math.sqrt(closest) if is_strided else closest
        points.append(step * count)
    return math.ldexp(_largest(taps * 2.0**-exponent, sizes, points, steps), exponent) / sharpness * OUTWARD


def matrix_norm(matrix: Tensor) -> float:
    """Bound on the 2-norm of a matrix."""
    return convolution_norm(matrix.unsqueeze(2))


def euclidean(values: Tensor) -> float:
    """Bound on the 2-norm of a tensor's entries, also where their squares are subnormal."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if not 0 < largest < math.inf:
        return largest
    return largest * float(torch.linalg.vector_norm(values / largest)) * (1 + (values.numel() + 8) * 2.0**-53)


def _largest(taps: Tensor, sizes: Sequence[int], points: Sequence[int], steps: Sequence[int]) -> float:
    """Bound on the norm at every frequency of a grid, for a kernel [groups, out, in, taps] of numbers up to 1."""
    bases = list(product(*(range(count // step) for count, step in zip(points, steps, strict=True))))
    bases = [base for base in bases if 2 * base[-1] <= points[-1] // steps[-1]]  # the others are conjugates of these
    aliases = list(product(*(range(step) for step in steps)))
    places, counts = torch.cartesian_prod(*map(torch.arange, sizes)).view(-1, len(sizes)), torch.tensor(points)
    shifts = torch.tensor(aliases) * (counts // torch.tensor(steps))
    frequencies = torch.tensor(bases).unsqueeze(1) + shifts  # [number, aliases, axes]
    dtype = torch.float64 if taps[0, ..., 0].numel() <= _FINE[0][0] else torch.float32
    top, squares, rounded_taps = 0.25, 0.0, taps.to(dtype)  # a norm is no smaller than an entry, of which one is 1/2
    for some in frequencies.split(max(1, _ENTRIES // (taps[..., 0].numel() * len(aliases)))):
        angles = (some.unsqueeze(2) * places % counts).double().div(counts).sum(-1) * (2 * math.pi)
        waves = torch.stack((angles.cos(), angles.sin())).to(dtype)  # [2, number, aliases, taps]
        real, imaginary = torch.einsum("goim,pfam->pfgoai", rounded_taps, waves).flatten(4).flatten(1, 2)
        grams = _grams(real, imaginary)
        squares = max(squares, float(grams.diagonal(dim1=1, dim2=2).real.sum(1).max()))
        top = _largest_eigenvalue(grams, top)
    size, terms = sorted((taps.shape[1], taps.shape[2] * len(aliases)))
    unit = _UNITS[dtype]
    lost = gamma(size + 2, unit) * size * top + gamma(terms + 2, unit) * squares  # by the algorithm, and by G's sums
    # |F - its value| <= gamma sum_m |W_m| for each entry, and a sum of n numbers is at most sqrt(n) their 2-norm.
    rounding = gamma(taps.shape[3] + _WAVE, unit) * math.sqrt(taps.shape[3])
    weights = float(torch.linalg.vector_norm(taps.flatten(1), dim=1).max())
    return math.sqrt((top + lost) / len(aliases) * (1 + 2.0**-20)) + rounding * weights


def _grams(real: Tensor, imaginary: Tensor) -> Tensor:
    """F* F of a batch of complex matrices F, or that of what has the same norm and fewer columns."""
    if real.shape[1] < real.shape[2]:
        real, imaginary = real.mT, imaginary.mT
    both, cross = torch.cat((real, imaginary), 1), real.mT @ imaginary
    return torch.complex(both.mT @ both, cross - cross.mT)


def _largest_eigenvalue(grams: Tensor, known: float) -> float:
    """A number, known or larger, that Cholesky's algorithm proves no eigenvalue to exceed."""
    top, diagonal = max(_estimated(grams), known), torch.eye(grams.shape[1], dtype=grams.dtype)
    while len(grams := grams[torch.linalg.cholesky_ex(top * diagonal - grams).info > 0]):
        top *= 1.01
    return top


def _estimated(grams: Tensor) -> float:
    """The largest eigenvalue, roughly: a start for the search of one that is proven to be larger than all."""
    vectors = torch.ones(*grams.shape[:2], 1, dtype=grams.dtype) + torch.arange(grams.shape[1]).view(-1, 1) % 3
    for _ in range(12):
        vectors = grams @ (vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp(min=1e-30))
    return float(torch.linalg.vector_norm(vectors, dim=1).max()) * 1.001
