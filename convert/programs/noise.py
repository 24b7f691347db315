r"""Typical rounding: each operation's result is moved by normal noise, as large as its own rounding.

Let u be the unit roundoff. A number rounded to nearest errs by a number that is uniform within half a unit in its last
place, so its root mean square is at most u |y| / sqrt(3). Roundings of different operations are taken as independent.

    sum of n products, float32   below, with s = |w|_2 |x|_2 and the result y
    the same in half precision   the sum in float32, and its result rounded once, at u = 2^-8 or 2^-11
    factors rounded (TF32)       each product errs by sqrt(2) u_f, so the sum by sqrt(2) u_f |w|_2 |x|_2
    factors of 8 bits            each errs by up to half a step, max |w| / 254
    average                      as a sum of n products with 1 / n
    normalisation                y = f x + (b - f m): f is rounded, each of the two terms, and their sum
    softmax                      x - max x is rounded, and changes y by that relative amount; three more roundings
    sum, mean                    u sqrt(log2 n) |x|_2 of cascaded sums, and u |y|
    interpolation                a coordinate c of a pixel is rounded three times, and moves y by sqrt(3) u c times the
                                 slope there; nothing where the factor is a power of two or the like, as c is exact
    Fourier transform            u sqrt(log2 n) times the root mean square of all results, for log2 n stages
    elsewhere                    u |y| sqrt(r) for r roundings; nothing where numbers are only moved or compared

Matrix products and convolutions add K = min(n, 256) products one after another, as kernels that keep sums in
registers do, and then the n / K block sums. After k of n products a partial sum is y k / n + s sqrt(k / n), drift and
random walk, and each addition errs by u times that. The squares add up, over a block and over the block sums, to

    u^2 ( s^2 (K + n / K) / 2  +  y^2 (K^2 / n + n / K) / 3 ) / 3

The drift counts: behind a rectifier all inputs have one sign, and y may be sqrt(n) s. Convolutions and matrix products
of 49 to 4608 terms, in oneDNN and in torch's own loops, were between 0.4 and 1.1 of it.

The runs are in float64, so that nothing else errs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

from .float64 import Lifted, evaluated, first_of, is_cast, node_dtype
from .program import Program

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
TF32 = 2.0**-11
_UNIFORM = 1 / math.sqrt(3)  # root mean square of a number that is uniform within [-1, 1]
_BLOCK = 256  # products that are added one after another

_MOVING = """
view _unsafe_view reshape permute t transpose expand slice select unsqueeze squeeze clone detach alias relu
relu_ max_pool1d max_pool2d_with_indices max_pool3d_with_indices constant_pad_nd cat split split_with_sizes
unbind chunk _to_copy empty_like zeros zeros_like ones ones_like arange neg abs max min amax amin maximum
minimum copy_ fill_ fill unfold flip roll index index_select gather
scatter stack as_strided zero_ empty lift_fresh lift_fresh_copy new_empty new_zeros new_full full full_like
scalar_tensor native_dropout dropout pixel_shuffle pixel_unshuffle channel_shuffle repeat upsample_nearest1d
upsample_nearest2d upsample_nearest3d randn rand eq where masked_fill masked_fill_ diagonal diagonal_copy tril
triu embedding reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
replication_pad3d sign floor ceil round trunc sort topk kthvalue median im2col narrow movedim slice_scatter
select_scatter index_put unfold_copy view_as_real view_as_complex real imag bernoulli bernoulli_
grid_sampler_nearest cummax cummin split_copy slice_copy expand_copy view_copy permute_copy unbind_copy
squeeze_copy unsqueeze_copy histc bincount new_ones
"""
_AVERAGING = ("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
_INTERPOLATING = (
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)
_DYADIC = 1024  # coordinates that are multiples of its inverse are exact
_LIMITED = ("clamp", "clamp_", "clamp_min", "clamp_max", "hardtanh", "hardtanh_")  # exact up to their limits
_HALF_EXACT = ("leaky_relu", "leaky_relu_", "_prelu_kernel", "elu", "elu_")  # where their operand is positive
_ROUNDINGS = {  # of operations that round more than once
    **dict.fromkeys(("silu", "silu_", "hardswish", "hardswish_", "sigmoid", "sigmoid_", "_fused_rms_norm"), 3),
    **dict.fromkeys(("hardsigmoid", "hardsigmoid_", "mish", "mish_", "softplus", "logaddexp", "lerp"), 2),
}
_ROUNDED_ONCE = """
add sub rsub mul div sqrt rsqrt reciprocal square pow exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
atan2 sinh cosh tanh erf erfc fmod remainder frac hypot addcmul addcdiv polar complex
"""
_WITH_ROWS = frozenset(
    (
        *_ROUNDED_ONCE.split(),
        *_ROUNDINGS,
        *_INTERPOLATING,
        *_LIMITED,
        *_HALF_EXACT,
        *(
            "native_layer_norm",
            "native_group_norm",
            "_softmax",
            "_safe_softmax",
            "_log_softmax",
            "gelu",
            "grid_sampler_2d",
            "prod",
        ),
    )
)
_EXACT = frozenset(_MOVING.split())  # operations of ATen that only move, compare or choose numbers


@dataclass(frozen=True)
class Precision:
    """The precision that a side computes in.

    Attributes:
        dtype: That of every operation, or None where each has that of the graph.
        factors: Unit at which the factors of products are rounded, both of them; 0 where they are not.
        levels: Steps from 0 to the largest number at which factors of products are rounded, 127 for 8 bits; 0 for none.
    """

    dtype: torch.dtype | None = None
    factors: float = 0.0
    levels: int = 0

    def units(self, dtype: torch.dtype | None) -> tuple[float, float]:
        """Unit roundoffs of sums, and of results that are stored, where the graph has this dtype."""
        chosen = self.dtype or dtype or torch.float32
        stored = UNITS.get(chosen, UNITS[torch.float32])
        return min(stored, UNITS[torch.float32]), stored


def _second(apply: Callable[..., Tensor], *factors: Tensor) -> Tensor:
    """|w|_2 |x|_2, entry by entry, of a sum of products: in float32, scaled so that no square over- or underflows."""
    tops = [float(one.abs().max()) if one.numel() else 1.0 for one in factors]
    tops = [top if 0 < top < math.inf else 1.0 for top in tops]
    squares = [(one / top).float().square() for one, top in zip(factors, tops, strict=True)]
    return apply(*squares).clamp_min(0).sqrt().double() * math.prod(tops)


def _products(name: str, func: Any, args: Any, out: Tensor) -> tuple[Tensor, float] | None:
    """|w|_2 |x|_2 of a sum of products, and the number of its terms; None for other operations."""
    if name in ("convolution", "_convolution", "mkldnn_convolution", "convolution_overrideable"):
        x, w, rest = args[0], args[1], args[3:]
        n = w[0].numel() if not args[6] else w.shape[0] * w[0, 0].numel() // int(args[8])
        return _second(lambda a, b: func(a, b, None, *rest), x, w), n
    if name in ("addmm", "baddbmm"):
        return _second(torch.matmul, args[1], args[2]), args[1].shape[-1]
    if name in ("mm", "bmm", "mv", "dot"):
        return _second(func, args[0], args[1]), args[0].shape[-1]
    if name == "linear":
        return _second(torch.nn.functional.linear, args[0], args[1]), args[0].shape[-1]
    if name in _AVERAGING:
        n = _window(name, args[1], args[0], out)
        return _second(lambda x: func(x, *args[1:]), args[0]) / math.sqrt(n), n
    return None


def _window(name: str, given: Any, x: Tensor, out: Tensor) -> int:
    """Numbers that an average is of: the kernel's, or where the result's size is given, as many as a window takes."""
    axes = int(name[-2])
    if name.startswith("avg"):
        return int(math.prod(given) ** (axes / len(given)))
    return math.prod(-(-n // m) for n, m in zip(x.shape[-axes:], out.shape[-axes:], strict=True))


def _steps(name: str, args: Any, levels: int) -> float:
    """Sum of the squares of what factors lose by steps of their largest number, relative to their root mean squares."""
    if not levels:
        return 0.0
    factors = args[1:3] if name in ("addmm", "baddbmm") else args[:2]
    halves = (float(one.abs().max()) / (2 * levels * max(float(one.square().mean().sqrt()), 1e-300)) for one in factors)
    return sum(half**2 for half in halves)


def _summed(name: str, args: Any, out: Tensor) -> Tensor | None:
    """The error of a sum or a mean in units of roundoff: the root of the sum of squares, times sqrt(log2 n)."""
    if name not in ("sum", "mean") or not isinstance(args[0], Tensor):
        return None
    x, n = args[0], max(1, args[0].numel() // max(1, out.numel()))
    axes = args[1] if len(args) > 1 and args[1] is not None else None
    keep = bool(args[2]) if len(args) > 2 else False
    total = x.square().sum() if axes is None else x.square().sum(axes, keepdim=keep)
    root: Tensor = total.sqrt() * math.sqrt(max(1.0, math.log2(n)))
    return root / n if name == "mean" else root


def _beside(name: str, args: Any, kwargs: Any, out: Any) -> Tensor:
    """The error of an operation of single numbers, in units of roundoff."""
    y: Tensor = first_of(out)
    if name.startswith("_fft"):
        return y.abs().square().mean().sqrt() * math.sqrt(max(1.0, math.log2(y.numel()))) * torch.ones_like(y.abs())
    if "batch_norm" in name or name in ("native_layer_norm", "native_group_norm"):
        return _normalised(name, args, out, y)
    if name in ("_softmax", "_safe_softmax"):
        x = args[0]
        below: Tensor = x - x.amax(args[1], keepdim=True)
        return y.abs() * (3 + below.square()).sqrt()  # the exponential, the sum, and the quotient
    if name in ("add", "sub", "add_", "sub_") and isinstance(args[1], Tensor) and kwargs.get("alpha", 1) != 1:
        scaled: Tensor = args[1] * kwargs["alpha"]
        return (y.square() + scaled.square()).sqrt()
    if name == "_log_softmax":
        return (1 + y.square()).sqrt()
    if name in ("gelu", "gelu_"):
        return torch.abs(args[0]) * math.sqrt(3)  # 1 + erf(x) cancels where x < 0, and erf itself is a polynomial
    if name in _INTERPOLATING:
        return _interpolated(args, y, is_smooth=name.endswith("_aa"), is_cubic="bicubic" in name)
    if name == "grid_sampler_2d":
        return _sampled(args, y)
    if name in _LIMITED:
        return torch.where(y != args[0], y.abs(), 0.0) if any(map(_is_rounded, args[1:])) else torch.zeros_like(y)
    if name in _HALF_EXACT and (len(args) < 3 or args[2] == 1):
        return torch.where(args[0] < 0, y.abs(), 0.0)
    if name == "prod":
        return y.abs() * math.sqrt(max(1.0, args[0].numel() / y.numel()))
    return y.abs() * math.sqrt(_ROUNDINGS.get(name, 1))


def _has_row(name: str) -> bool:
    """Whether the error of an operation of single numbers is known; that of another is taken for one rounding."""
    plain = name.removesuffix("_")
    return not _WITH_ROWS.isdisjoint((name, plain)) or name.startswith("_fft") or "batch_norm" in name


def _is_rounded(limit: Any) -> bool:
    """Whether a number among the arguments has more digits than float32, in which networks have it."""
    return (
        isinstance(limit, float)
        and math.isfinite(limit)
        and torch.tensor(limit, dtype=torch.float32, device="cpu").item() != limit
    )


def _interpolated(args: Any, y: Tensor, *, is_smooth: bool, is_cubic: bool) -> Tensor:
    """The result, and along each axis the slope of the image times the coordinate, which is rounded three times.

    Cubic weights are rounded thrice, too. Smoothing by a window of 2 s pixels moves each weight by 1 / s^2 of the
    coordinate's error, which is s^(-3/2) of what a slope does, as the differences of pixels vary.
    """
    x, found = args[0], y.square() * (3 if is_cubic else 1)
    for place, (n, m) in enumerate(zip(x.shape[2:], y.shape[2:], strict=True)):
        factor = args[3 + place] if len(args) > 3 + place else None
        scale = (n - 1) / max(m - 1, 1) if args[2] else 1 / factor if factor else n / m
        if n == 1 or (scale * _DYADIC).is_integer():
            continue
        slope = x.diff(dim=2 + place, append=x.narrow(2 + place, n - 1, 1)).abs()
        near = torch.nn.functional.interpolate(slope, y.shape[2:], mode="nearest")
        along = torch.arange(m, dtype=y.dtype, device=y.device) * (scale * max(scale, 1.0) ** (-1.5 * is_smooth))
        found = found + 3 * (near * along.view(-1, *[1] * (x.ndim - 3 - place))).square()
    return found.sqrt()


def _sampled(args: Any, y: Tensor) -> Tensor:
    """The same for coordinates that are given: the root mean square of each channel's slope times the coordinate."""
    x, grid, found = args[0], args[1], y.square()
    for place, n in enumerate(x.shape[2:]):
        slope = x.diff(dim=2 + place).square().mean((2, 3), keepdim=True)
        coordinate = (grid[..., 1 - place] + 1).unsqueeze(1) * (n / 2)
        found = found + 3 * slope * coordinate.square()
    return found.sqrt()


def _normalised(name: str, args: Any, out: Any, y: Tensor) -> Tensor:
    """Both terms of f x + (b - f m), each of which has the rounding of f, too, and their sum."""
    x, channels = args[0], (1, -1, *[1] * (args[0].ndim - 2))
    if name == "native_layer_norm":
        mean, rstd, weight = out[1], out[2], args[2]
        factor = rstd if weight is None else rstd * weight
    elif name == "native_group_norm":
        mean, rstd = (one.repeat_interleave(x.shape[1] // args[6], 1).view(len(x), *channels[1:]) for one in out[1:3])
        factor = rstd if args[1] is None else rstd * args[1].view(channels)
    elif name in ("native_batch_norm", "_native_batch_norm_legit"):  # of an image's own statistics, as instance norm
        mean, rstd = (one.view(channels) for one in out[1:3])
        if not mean.numel():  # of statistics that the layer has
            mean, rstd = args[3].view(channels), (args[4].view(channels) + args[7]).rsqrt()
        factor = rstd if args[1] is None else rstd * args[1].view(channels)
    elif name == "_native_batch_norm_legit_no_training":
        mean, rstd = args[3].view(channels), (args[4].view(channels) + args[6]).rsqrt()
        factor = rstd if args[1] is None else rstd * args[1].view(channels)
    else:
        return y.abs()
    found: Tensor = (2 * (factor * x).square() + 2 * (factor * mean).square() + y.square()).sqrt()
    return found


class Noise(TorchDispatchMode):
    """Moves each operation's result by its usual rounding.

    Args:
        precision: The side's.
        seed: Of the noise.
        scales: Sizes of sums of products that an earlier run of the same operations found; it is filled by the first.
    """

    def __init__(self, precision: Precision, seed: int, scales: list[tuple[Tensor, float]] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._precision, self._seed = precision, seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._scales = [] if scales is None else scales
        self._known, self._place = len(self._scales), 0
        self.dtype: torch.dtype | None = None  # the graph's, of the operation that runs
        self.without_row: set[str] = set()  # operations that are taken to round once

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, moved."""
        out, name = func(*args, **(kwargs or {})), func._schema.name.split("::")[1]
        first = first_of(out)
        if not _EXACT.isdisjoint((name, name.removesuffix("_"))) or not isinstance(first, Tensor) or not first.numel():
            return out
        if not (first.is_floating_point() or first.is_complex()):
            return out
        moved = first + self._noise(name, func, args, kwargs or {}, out, first)
        if func._schema.is_mutable:
            first.copy_(moved)
            return out
        return type(out)([moved, *out[1:]]) if isinstance(out, list | tuple) else moved

    def stored(self, value: Tensor) -> Tensor:
        """A number that is only stored, in the precision of ``dtype``."""
        _, unit = self._precision.units(self.dtype)
        return value + self._normal(value) * value.abs() * (unit * _UNIFORM)

    def _noise(self, name: str, func: Any, args: Any, kwargs: Any, out: Any, y: Tensor) -> Tensor:
        summing, storing = self._precision.units(self.dtype)
        found = self._of_products(name, func, args, y)
        if found is not None:
            second, n = found
            block = min(n, _BLOCK)
            walk, drift = (block + n / block) / 2, (block**2 / n + n / block) / 3
            of_second, of_sum = summing**2 * walk, summing**2 * drift
            if storing > summing:
                of_sum += storing**2
            if name not in _AVERAGING:
                of_second += 2 * self._precision.factors**2 + _steps(name, args, self._precision.levels)
            size = (
                (y.abs() if y.is_complex() else y)
                .square()
                .mul_(of_sum)
                .addcmul_(second, second, value=of_second)
                .sqrt_()
            )
        else:
            summed = _summed(name, args, y)
            if summed is None and not _has_row(name):
                self.without_row.add(name)
            size = (_beside(name, args, kwargs, out) if summed is None else summed) * summing
            if summed is not None or storing > summing:  # the result is rounded once more
                size = (size.square() + (y.abs() * storing).square()).sqrt()
        # Infinities, as of a mask in front of a softmax, and what follows of them are exact.
        return self._normal(y).mul(size).mul_(_UNIFORM).nan_to_num_(0.0, 0.0, 0.0)

    def _of_products(self, name: str, func: Any, args: Any, y: Tensor) -> tuple[Tensor, float] | None:
        """The size of a sum of products: that of the first run, where there was one."""
        place = self._place
        if place < self._known and self._scales[place][0].shape == y.shape and _is_product(name):
            self._place += 1
            return self._scales[place][0].double(), self._scales[place][1]
        found = _products(name, func, args, y)
        if found is not None and not self._known:
            self._scales.append((found[0].float(), found[1]))
        return found

    def _normal(self, like: Tensor) -> Tensor:
        generator = self._generators.get(like.device)
        if generator is None:
            generator = self._generators[like.device] = torch.Generator(like.device).manual_seed(self._seed)
        single = like if like.is_complex() else like.float()  # the size of noise needs no more digits
        return torch.empty_like(single).normal_(generator=generator)


def _is_product(name: str) -> bool:
    return name in (
        *_AVERAGING,
        *("convolution", "_convolution", "mkldnn_convolution", "convolution_overrideable"),
        *("addmm", "baddbmm", "mm", "bmm", "mv", "dot", "linear"),
    )


class Noisy(Lifted):
    """A run in float64 in which every operation rounds as it usually does."""

    def __init__(self, graph: Program, noise: Noise, watched: frozenset[fx.Node] = frozenset()) -> None:
        super().__init__(graph, watched)
        self._noise = noise

    def result(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result, moved."""
        return noisy(node, args, kwargs, self._noise)


def noisy(node: fx.Node, args: Any, kwargs: Any, noise: Noise) -> Any:
    """The result of an operation in float64, moved by noise."""
    noise.dtype = node_dtype(node)
    if is_cast(node):
        found = evaluated(node, args, kwargs)
        return noise.stored(found) if narrows(node) else found
    with noise:
        return evaluated(node, args, kwargs)


def narrows(node: fx.Node) -> bool:
    """Whether a cast rounds: to a floating type with fewer digits than its operand's."""
    before, after = node_dtype(node.all_input_nodes[0]) if node.all_input_nodes else None, node_dtype(node)
    return before is not None and after is not None and UNITS.get(after, 0.0) > UNITS.get(before, 0.0)
