"""The factored engine: smooth the padded input, then convolve; and attention along one axis.

If all heads share alpha and sit at the kernel's taps, the probabilities of head h at query q depend only on
its target t = q + Delta_h, and are a product of a row factor and a column factor (one factor for each axis):

    probability(k) = softmax_k(-alpha |k - t|^2) = S_row[t_1, k_1] S_col[t_2, k_2]

So head h at q reads the smoothed input S X at t, and the sum over heads with W_Delta is a convolution:

    Attention_alpha(X) = Conv_W(S_row X S_col^T),      S[t, k] = softmax_k(-alpha (k - t)^2)

``proofs/claims/computing/separability.py`` derives that softmaxes factor, ``proofs/claims/computing/factorisation.py``
smoothing before the convolution. It is exact for every alpha, stride, dilation and padding. Where every off-diagonal
entry of S rounds to zero (``Regime.is_exact``) S is the identity, is skipped, and the layer is the convolution's call.

S is a constant depthwise convolution and a border's scale (``smooth``), or a table an axis (``Axis``) where the
attention is very flat, in double precision on a CPU, and for a transposed convolution: it smooths its stuffed input, of
which a table needs only the columns where x is, and convolves with stride 1.

Two things save work in the soft regime. Along an axis with a single tap, the targets are the queries, so only those
rows of S are needed, and the stride is in them. And a kernel of a single tap mixes channels only, which commutes with
smoothing: Conv_W(S X) = S Conv_W(X), done on whichever side has fewer channels.

Smoothing as a convolution: the same weights for every target, rescaled near the border.

A quadratic score depends only on where the key lies relative to the target. So does its exponential, and only the sum
that normalises it notices where the image ends:

    S X = D (G * X),     g(d) = exp(-alpha d^2) / Z,     Z = sum_d exp(-alpha d^2)
    D[t] = Z / sum_{0 <= k < keys} exp(-alpha (k - t)^2)

along each axis, with D = 1 in the middle of an image. Far taps are left out of g, as many as weigh no more than u
together (``bounds.rounding.left_out``, which the certificate counts), and a few remain: a constant kernel, convolved
channel by channel. D keeps the sum over all keys. Along several axes G and D are products of one factor an axis
(``proofs/claims/computing/separability.py``), and D of one axis commutes with G of another, so D comes once, at the
end.

Attention along one axis (its queries and keys, its table of probabilities, the table's product with images) is shared
with the separable engine. Far keys weigh next to nothing: they are left out (``without_far_keys``), which makes the
table a band. The rows of a long table are made in blocks, and each block is kept for, and multiplied with, the few
pixels that it reads. ``proofs/claims/certificate/accumulation.py`` proves what that costs,
``proofs/claims/computing/factorisation.py`` when one table smooths the images for all heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import accumulate
from operator import mul
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import Size
from ..bounds.rounding import JOINT_TAPS, NEGLIGIBLE, factored_error, left_out, unit_roundoff
from ..context import has_numbers, is_traced, is_transformed
from ..heads.values import LayerValues, constant
from ..spec import ConvSpec, reversed_pads
from .base import Cost, Engine, convolution_flops, learned_scores
from .convolution import Geometry, convolve, laid_out_like, own_call

BLOCK = 32  # queries that are multiplied with the pixels that they read, where the others would double the work
_KEPT, _KEPT_BYTES = 64, 2**20  # tables of sizes seen lately, and how large one of them may be
_T = TypeVar("_T")


def kept(make: Callable[..., _T]) -> Callable[..., _T]:
    """Keeps what a function makes of numbers: the newest results, none in a trace, whose tensors are symbols."""
    cached = lru_cache(maxsize=_KEPT)(make)

    def call(*numbers: object) -> _T:
        if is_transformed():
            return make(*numbers)
        if not torch.is_inference_mode_enabled():
            return cached(*numbers)
        with torch.inference_mode(False):  # training may meet it later, which cannot use tensors of inference mode
            return cached(*numbers)

    return call


def known(make: Callable[..., _T]) -> Callable[..., _T]:
    """As ``kept``, for numbers made of numbers, which ``torch.compile`` takes as constants."""
    call = kept(make)
    call._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does
    return call


def convolution_padding(spec: ConvSpec) -> tuple[int, ...]:
    """Zeros at both ends of each axis that a convolution call adds by itself."""
    if spec.padding_mode != "zeros" or (spec.is_uneven and not spec.transposed):
        return (0,) * spec.axes
    return tuple(before for before, _ in spec.pads)


def pad_for_tables(spec: ConvSpec, x: Tensor) -> Tensor:
    """The input with its padding, but for zeros that are the same at both ends, which no table reads.

    Returns:
        Of a transposed convolution's input, the pixels that are keys; where there are none, the whole key grid, which
        is all zeros.
    """
    if spec.transposed:
        unseen = dropped(spec, Size(*x.shape[2:]))
        if unseen is None:
            return spec.pad(x)
        return F.pad(x, reversed_pads((-b, -a) for b, a in unseen)) if any(map(any, unseen)) else x
    if spec.padding_mode != "zeros" or spec.is_uneven:
        return spec.pad(x)
    if all(before == after for before, after in spec.pads):
        return x
    return F.pad(x, reversed_pads((0, after - before) for before, after in spec.pads))


def dropped(spec: ConvSpec, size: Size) -> tuple[tuple[int, int], ...] | None:
    """Pixels before and after each axis that a transposed convolution's padding drops; None if no pixel is left."""
    if not spec.transposed:
        return ((0, 0),) * spec.axes
    along = zip(spec.pads, spec.stuffing, strict=True)
    found = tuple((max(0, -(before // step)), max(0, -(after // step))) for (before, after), step in along)
    if any(length <= sum(pair) for length, pair in zip(size, found, strict=True) if any(pair)):
        return None
    return found


@dataclass(frozen=True)
class Axis:
    """Queries and keys along one axis of a layer, for one size of its input.

    Attributes:
        keys: Pixels of the padded axis.
        queries: Number of queries, at start, start + stride, ... of the padded axis.
        start: The first query.
        stride: Pixels between queries.
        first: Key that the images' first pixel is.
        step: Keys from one pixel of the images to the next; the others, and those beyond the images, have the value 0.
        pixels: Pixels of the images along this axis.
    """

    keys: int
    queries: int
    start: int
    stride: int
    first: int
    step: int
    pixels: int

    @classmethod
    def of(cls, spec: ConvSpec, size: Size, axis: int) -> Axis:
        """Builds an axis of a layer's input of this size; the images are what ``pad_for_tables`` makes of it."""
        keys, queries = spec.padded_size(size)[axis], spec.output_size(size)[axis]
        first, step = convolution_padding(spec)[axis], spec.stuffing[axis]
        pixels = keys - 2 * first
        unseen = dropped(spec, size)
        if unseen is None:
            first, step, pixels = 0, 1, keys
        elif spec.transposed:
            before, after = unseen[axis]
            first, pixels = first + before * step, size[axis] - before - after
        return cls(keys, queries, spec.middle[axis], spec.query_stride[axis], first, step, pixels)

    @classmethod
    def of_targets(cls, spec: ConvSpec, size: Size, axis: int) -> Axis:
        """The targets that some head reads: along an axis with a single tap the queries, else every pixel."""
        queries = cls.of(spec, size, axis)
        return queries if spec.kernel_size[axis] == 1 else replace(queries, queries=queries.keys, start=0, stride=1)

    def seen(self, probabilities: Tensor) -> Tensor:
        """Drops the probabilities of keys whose values are zero: [..., keys] -> [..., pixels]."""
        if self.step == 1:
            return probabilities.narrow(-1, self.first, self.pixels)
        return probabilities[..., self.first : self.first + self.step * (self.pixels - 1) + 1 : self.step]

    def probabilities(self, alpha: float | Tensor, center: float | Tensor, device: torch.device) -> Tensor:
        """softmax_k(-alpha (k - q - center)^2) in double precision: [..., queries, keys].

        Args:
            alpha: Sharpness: a number, or [num_heads, 1, 1].
            center: Offset of the target from the query, likewise.
            device: Where the table is made.
        """
        targets = self.start + self.stride * torch.arange(self.queries, dtype=torch.float64, device=device)[:, None]
        keys = torch.arange(self.keys, dtype=torch.float64, device=device)
        return (-alpha * (keys - targets - center).square()).softmax(dim=-1)


@dataclass(frozen=True)
class Table:
    """Attention probabilities along one axis.

    Attributes:
        parts: Rows of the table, in order, each without the pixels that none of its queries reads: [queries, pixels].
        spans: First and last pixel of each of them.
    """

    parts: tuple[Tensor, ...]
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, probabilities: Tensor) -> Table:
        """The table in one part."""
        return cls((probabilities,), ((0, probabilities.shape[1]),))

    @classmethod
    def of(cls, rows: Iterable[Tensor]) -> Table:
        """The table of its rows, [queries, all pixels] each: in parts if it is a narrow band, else in one."""
        parts, spans, entries, pixels = list[Tensor](), list[tuple[int, int]](), 0, 0
        for part in rows:
            pixels, entries = part.shape[1], entries + part.numel()
            used = (part != 0).any(0).nonzero()
            begin, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            parts.append(part[:, begin:end].clone())
            spans.append((begin, end))
        if 2 * sum(part.numel() for part in parts) <= entries:
            return cls(tuple(parts), tuple(spans))
        padded = [F.pad(part, (begin, pixels - end)) for part, (begin, end) in zip(parts, spans, strict=True)]
        return cls.whole(torch.cat(padded))

    def along(self, x: Tensor, axis: int) -> Tensor:
        """Applies the table along one axis of images [batch, channels, *size]."""
        dim = axis + 2
        if dim == x.ndim - 1:
            return self._columns(x)
        if dim == x.ndim - 2:
            return self._rows(x)
        return torch.unflatten(self._rows(x.flatten(dim + 1)), -1, x.shape[dim + 1 :])

    def _rows(self, x: Tensor) -> Tensor:
        pairs = zip(self.parts, self.spans, strict=True)
        found = [part @ x[..., begin:end, :] for part, (begin, end) in pairs]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-2)

    def _columns(self, x: Tensor) -> Tensor:
        pairs = zip(self.parts, self.spans, strict=True)
        found = [x[..., begin:end] @ part.T for part, (begin, end) in pairs]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


def table(axis: Axis, alpha: float, center: float, dtype: torch.dtype, device: torch.device) -> Table:
    """The table of a head at rest along one axis, without far keys."""
    make = _make_table if is_traced() or axis.queries * axis.pixels * dtype.itemsize > _KEPT_BYTES else _kept_table
    return make(axis, alpha, center, dtype, device)


def _make_table(axis: Axis, alpha: float, center: float, dtype: torch.dtype, device: torch.device) -> Table:
    def rows(some: Axis) -> Tensor:
        return without_far_keys(some.seen(some.probabilities(alpha, center, device)), dtype).to(dtype)

    if device.type != "cpu" or is_transformed() or axis.queries <= 2 * BLOCK:
        return Table.whole(rows(axis))
    firsts = range(0, axis.queries, BLOCK)
    counted = ((axis.start + axis.stride * first, min(BLOCK, axis.queries - first)) for first in firsts)
    return Table.of(rows(replace(axis, start=start, queries=queries)) for start, queries in counted)


_kept_table = kept(_make_table)


def axis_probabilities(layer: LayerValues, size: Size, axis: int) -> Tensor:
    """Softmax of every head along one axis, computed in double precision: [num_heads, queries, keys]."""
    along, device = Axis.of(layer.spec, size, axis), layer.weight.device
    if layer.axis_scores is not None:
        queries = along.start + along.stride * torch.arange(along.queries, dtype=torch.float64, device=device)
        probabilities = layer.axis_scores.along(axis, queries, along.keys).softmax(dim=-1)
    else:
        alpha, centers = layer.alpha.double()[:, None, None], layer.centers.double()[:, axis, None, None]
        probabilities = along.probabilities(alpha, centers, device)
    return probabilities.to(layer.regime.dtype)


def without_negligible(probabilities: Tensor) -> Tensor:
    """Probabilities with 0 in place of those below ``NEGLIGIBLE`` units of rounding, which change no sum.

    It spares the processor subnormal numbers, which it multiplies many times slower. Learned tables have them anywhere,
    also between two peaks, where ``without_far_keys`` would leave them.
    """
    return probabilities.masked_fill(probabilities < NEGLIGIBLE * unit_roundoff(probabilities.dtype), 0)


def without_far_keys(probabilities: Tensor, dtype: torch.dtype) -> Tensor:
    """The table with zeros for the first and the last keys of each query that weigh no more than ``left_out``.

    Not only are zeros not multiplied: numbers close to the smallest, which they replace, can take a processor a hundred
    times as long.

    Args:
        probabilities: [queries, keys], non-negative.
        dtype: Precision that they are used in.
    """
    if is_transformed():
        return probabilities
    most = 0.49 * left_out(dtype)  # on either side; less than half, because sums are rounded
    before, after = probabilities.double().cumsum(1), probabilities.double().flip(1).cumsum(1).flip(1)
    return probabilities.where((before > most) & (after > most), 0.0)


WIDEST = 31  # taps: wider kernels are slower than tables
_HAS_ONEDNN = bool(torch.backends.mkldnn.is_available())
_FLATTEST = 2.0**-6  # alpha below which kernels are wider than that


@known
def radius(alpha: float, dtype: torch.dtype) -> int:
    """The taps d = -R, ..., R that are kept: those beyond weigh at most 0.49 ``left_out`` on either side.

    A target lies on the key grid, so the sum that normalises its weights is at least 1.
    """
    if alpha < _FLATTEST:
        return WIDEST
    beyond, most = 0.0, 0.49 * left_out(dtype)
    for distance in range(math.ceil(math.sqrt(60 / alpha)), 0, -1):
        beyond += math.exp(-alpha * distance * distance)
        if beyond > most:
            return distance
    return 0


def is_fast(alpha: float, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a convolution with the stencil is how torch smooths fastest on a device."""
    if 2 * radius(alpha, dtype) + 1 > WIDEST:
        return False
    return device.type != "cpu" or (dtype == torch.float32 and _HAS_ONEDNN)


def smooth(x: Tensor, axes: Sequence[Axis], alpha: float) -> Tensor:
    """S X along every axis: one depthwise convolution an axis, or one for both axes of an image if taps are few.

    Args:
        x: Images [batch, channels, *pixels], without the zeros at both ends of an axis.
        axes: Targets and keys along each axis; between two pixels of the images lies no other key.
        alpha: Sharpness.

    Returns:
        [batch, channels, *targets].
    """
    reach, every = radius(alpha, x.dtype), tuple(range(len(axes)))
    channels = x.shape[1]
    joint = len(axes) == 2 and 2 * reach + 1 <= JOINT_TAPS
    make_kernel, make_scale = (kernel, scale) if is_traced() else (_kept_kernel, _kept_scale)
    attended = x
    for along in [every] if joint else [(number,) for number in every]:
        stride, padding, taps = ([usual] * len(axes) for usual in (1, 0, 1))
        for number in along:
            axis = axes[number]
            stride[number], padding[number], taps[number] = axis.stride, reach + axis.first, 2 * reach + 1
        g = make_kernel(weights(joint, alpha, reach), (channels, 1, *taps), x.dtype, x.device)
        attended = convolve(attended, g, None, Geometry(tuple(stride), tuple(padding), (1,) * len(axes), channels))
    return attended * make_scale(tuple(axes), alpha, x.dtype, x.device)


@known
def weights(joint: bool, alpha: float, reach: int) -> tuple[float, ...]:
    """g, or the outer product of g along both axes, row by row."""
    total = 1 + 2 * math.fsum(_bell(alpha))
    along = [math.exp(-alpha * d * d) / total for d in range(-reach, reach + 1)]
    return tuple(w * v for v in along for w in along) if joint else tuple(along)


def kernel(numbers: tuple[float, ...], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same kernel for every channel: [channels, 1, *taps]."""
    return constant(numbers, dtype, device).repeat(shape[0]).view(shape)


def scale(axes: tuple[Axis, ...], alpha: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """D, the product of one factor an axis: [*targets]."""
    found = [_along(axis, alpha, dtype, device) for axis in axes]
    return reduce(mul, [each.view(-1, *(1,) * (len(axes) - 1 - number)) for number, each in enumerate(found)])


_kept_kernel, _kept_scale = kept(kernel), kept(scale)


def _along(axis: Axis, alpha: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """D along one axis, [targets]: numbers, which are constants of a trace, or computed where sizes are symbols there.

    With h(m) = 1/2 + sum_{d = 1}^{m} exp(-alpha d^2), which stops growing at some reach, the sum that normalises the
    weights of target t is h(t) + h(keys - 1 - t).
    """
    if has_numbers(axis.keys, axis.queries):
        return constant(factors(axis.keys, axis.queries, axis.start, axis.stride, alpha), dtype, device)
    half = constant(_half_sums(alpha), torch.float64, device)
    targets = axis.start + axis.stride * torch.arange(axis.queries, device=device)
    before, after = (half[far.clamp(max=len(half) - 1)] for far in (targets, axis.keys - 1 - targets))
    return (2 * half[-1] / (before + after)).to(dtype)


@known
def factors(keys: int, queries: int, start: int, stride: int, alpha: float) -> tuple[float, ...]:
    """D along one axis, target by target."""
    half = _half_sums(alpha)
    last, targets = len(half) - 1, range(start, start + stride * queries, stride)
    return tuple(2 * half[-1] / (half[min(t, last)] + half[min(keys - 1 - t, last)]) for t in targets)


@known
def _half_sums(alpha: float) -> tuple[float, ...]:
    """h(0), h(1), ... as long as it grows in double precision."""
    return tuple(accumulate(_bell(alpha), initial=0.5))


def _bell(alpha: float) -> tuple[float, ...]:
    """exp(-alpha d^2) for d = 1, 2, ... as long as it changes a sum in double precision."""
    return tuple(math.exp(-alpha * d * d) for d in range(1, math.ceil(math.sqrt(40 / alpha)) + 1))


def keys_read(alpha: float, keys: int, dtype: torch.dtype) -> int:
    """About how many keys along one axis a query reads, in a precision: all but those that weigh next to nothing."""
    if not alpha > 0:
        return keys
    return min(2 * math.floor(math.sqrt(-math.log(left_out(dtype)) / alpha)) + 1, keys)


class FactoredEngine(Engine):
    """Smoothing along every axis, then the convolution of the same kernel."""

    name: ClassVar[str] = "factored"
    summary: ClassVar[str] = "the proven rewriting: smooth the input with the attention's own softmax, then convolve"

    def refusal(self, layer: LayerValues) -> str | None:
        """It needs heads at the kernel's taps, one alpha for all, quadratic scores, and positions at rest."""
        learned = learned_scores(layer)
        if learned is not None:
            return learned
        if not layer.regime.at_taps:
            return "a head's centre is not at its kernel tap"
        if layer.regime.shared_alpha is None:
            return "the heads do not share one alpha"
        return None

    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """The convolution, and in the soft regime a smoothing along each axis."""
        spec, flops = layer.spec, convolution_flops(layer.spec, size, batch=batch)
        grid = spec.padded_size(size)
        padded = batch * spec.in_channels * math.prod(grid)
        if layer.regime.is_exact:
            return Cost(flops, 0 if spec.padding_mode == "zeros" else padded * layer.weight.element_size())
        channels = batch * (spec.out_channels if _channels_first(spec) else spec.in_channels)
        held, smoothing, lengths = padded, 0, list(grid)
        for axis, keys in enumerate(grid):
            lengths[axis] = Axis.of_targets(spec, size, axis).queries
            smoothing += math.prod(lengths) * keys_read(min(layer.regime.alpha), keys, layer.regime.dtype)
            held += channels * math.prod(lengths)
        if spec.transposed:  # a convolution with stride 1
            terms = spec.num_heads * spec.in_channels // spec.groups
            flops = 2 * batch * math.prod(spec.output_size(size)) * spec.out_channels * terms
        return Cost(flops + 2 * channels * smoothing, held * layer.regime.dtype.itemsize)

    def error(self, layer: LayerValues) -> float:
        """``rounding.factored_error``."""
        return factored_error(layer)

    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer."""
        spec, bias = layer.spec, layer.bias
        if layer.regime.is_exact:
            return own_call(spec, x, layer.weight, bias)
        source, kernel, size = pad_for_tables(spec, x), layer.kernel, Size(*x.shape[2:])
        if _channels_first(spec):
            mixed = _smoothed(layer, convolve(source, kernel, None, Geometry.of(spec.axes, groups=spec.groups)), size)
            return laid_out_like(x, mixed if bias is None else mixed + bias.view(-1, *(1,) * spec.axes))
        along = zip(spec.kernel_size, spec.query_stride, strict=True)
        left = tuple(1 if taps == 1 else stride for taps, stride in along)  # of the stride, after smoothing
        geometry = Geometry(left, (0,) * spec.axes, spec.dilation, spec.groups)
        return laid_out_like(x, convolve(_smoothed(layer, source, size), kernel, bias, geometry))


def _smoothed(layer: LayerValues, source: Tensor, size: Size) -> Tensor:
    """S X in the images' dtype, computed in at least float32.

    Args:
        layer: The layer.
        source: What ``pad_for_tables`` made of the images, in whatever channels: [batch, channels, *pixels].
        size: Size of the layer's input.
    """
    spec, alpha, dtype = layer.spec, layer.regime.alpha[0], layer.regime.dtype
    axes = (_targets if is_traced() else _kept_targets)(spec, size)
    x = source.to(dtype)
    if not spec.transposed and is_fast(alpha, dtype, x.device):
        return smooth(x, axes, alpha).to(source.dtype)
    for number, axis in enumerate(axes):
        x = table(axis, alpha, 0.0, dtype, x.device).along(x, number)
    return _kept_apart(x).to(source.dtype)


def _targets(spec: ConvSpec, size: Size) -> tuple[Axis, ...]:
    return tuple(Axis.of_targets(spec, size, axis) for axis in range(spec.axes))


_kept_targets = kept(_targets)


def _kept_apart(x: Tensor) -> Tensor:
    """The same numbers, as the result of an operation of their own while a layer is compiled.

    Inductor (torch 2.13) fails on a view that a backward pass keeps for a convolution of symbolic size. It sees through
    a copy and a sum with zero, but not through two changes of sign, which are exact and cost nothing once compiled.
    """
    return x.neg().neg() if torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting() else x


def _channels_first(spec: ConvSpec) -> bool:
    return spec.num_heads == 1 and spec.out_channels < spec.in_channels
