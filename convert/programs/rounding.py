r"""What operations round, of one call: sizes of errors, in units of roundoff that are uniform within half a unit.

Let u be the unit roundoff. A number rounded to nearest errs by a number that is uniform within half a unit in its last
place, so its root mean square is at most u |y| / sqrt(3). Roundings of different operations are taken as independent,
and so are those of different numbers of one result, except where an error is *shared*: that of a mean, a deviation or
the sum of a softmax moves all numbers of its channel or row in step, and does not average out behind them.

    sum of n products, float32   below, with s = |w|_2 |x|_2 and the result y
    the same in half precision   the sum in float32, and its result rounded once, at u = 2^-8 or 2^-11
    factors rounded (TF32)       each product errs by sqrt(2) u_f, so the sum by sqrt(2) u_f |w|_2 |x|_2
    factors of 8 bits            each errs by up to half a step, max |w| / 254
    average                      as a sum of n products with 1 / n
    normalisation                y = f x + (b - f m): f x and y are rounded; shared: f twice, which moves y in
                                 proportion to y - b, and f m twice
    softmax                      x - max x is rounded, and changes y by that relative amount; the exponential and the
                                 quotient are rounded; shared: the sum
    sum, mean                    u sqrt(log2 n) |x|_2 of cascaded sums, and u |y|
    cumulative sum               each partial sum is rounded: the root of the sum of their squares
    variance, deviation, norm    twice
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

Batch and group norm add the n pixels of a channels-last map one after another, in single precision: K = n. With mean m
and deviation d of what is normalised, m then errs by u sqrt(d^2 / 2 + m^2 n / 3), and the variance, a sum of numbers of
one sign, by u sqrt(n / 3) of itself, in group norm (1 + m^2 / d^2) times that, as it is E[x^2] - m^2. Kernels of
contiguous maps were 0.8 and 0.7 of what the table says, those of channels-last ones 0.7 to 1.3.

**Exact numbers have no error.** A sum of whole numbers below 2^24 is exact in single precision, and so is an operation
of single numbers whose result is a number of the precision, or one of its operands: counts, x + 0, x times 1, halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_BLOCK = 256  # products that are added one after another
_DYADIC = 1024  # coordinates that are multiples of its inverse are exact
WHOLE = 2.0**24  # whole numbers below it are exact in single precision
_PROBED = 64  # numbers that tell quickly that not all are whole


@dataclass(frozen=True)
class Ran:
    """One call of an operation in float64.

    Attributes:
        name: The operation's, in ATen.
        func: It.
        args: Its arguments by place.
        kwargs: Its arguments by name.
        out: Its result, or several.
        is_channels_last: Whether the network itself runs it on a map whose channels lie side by side in memory.
    """

    name: str
    func: Any
    args: Any
    kwargs: Any
    out: Any
    is_channels_last: bool = False

    @property
    def y(self) -> Tensor:
        """The first result."""
        found: Tensor = self.out[0] if isinstance(self.out, list | tuple) else self.out
        return found


@dataclass(frozen=True)
class Shared:
    """An error that several numbers share, of one normal number for all of them.

    Attributes:
        shape: Of the normal numbers.
        size: Of the error, in a shape that spreads over the result's.
        factor: What it is multiplied by at each number, or None.
        spread: Brings the normal numbers into a shape that spreads over the result's.
    """

    shape: Sequence[int]
    size: Tensor
    factor: Tensor | None = None
    spread: Callable[[Tensor], Tensor] = lambda one: one


@dataclass(frozen=True)
class Errs:
    """Sizes of the errors of one call.

    Attributes:
        own: Of each number by itself.
        shared: Of those that share one.
        is_sum: Whether these are of what is computed before the result is stored, which rounds it once more.
        is_once: Whether nothing rounds where the result is a number of the precision, or an operand.
        is_exact: Whether nothing rounds, whatever the precision.
    """

    own: Tensor
    shared: tuple[Shared, ...] = ()
    is_sum: bool = False
    is_once: bool = False
    is_exact: bool = False


# Sums of products.


@dataclass(frozen=True)
class Products:
    """A sum of products.

    Attributes:
        second: |w|_2 |x|_2, entry by entry.
        terms: Their number.
        is_average: Whether the factors on one side are 1 / n.
    """

    second: Tensor
    terms: float
    is_average: bool = False

    def sizes(self, y: Tensor, unit: float, of_factors: float, of_storing: float) -> Tensor:
        """The errors, times sqrt(3), in single precision.

        Args:
            y: The result.
            unit: Of sums.
            of_factors: Sum of the squares of the relative errors of both factors.
            of_storing: Square of the unit of storing the result, or 0.
        """
        n = self.terms
        block = min(n, _BLOCK)
        walk, drift = (block + n / block) / 2, (block**2 / n + n / block) / 3
        of_second = math.sqrt(unit**2 * walk + (0.0 if self.is_average else of_factors))
        of_sum = math.sqrt(unit**2 * drift + of_storing)
        return torch.hypot((y.abs() if y.is_complex() else y).float().mul(of_sum), self.second.float().mul(of_second))


def convolution(ran: Ran) -> Products:
    """Terms of a convolution, transposed or not."""
    x, w, rest = ran.args[0], ran.args[1], ran.args[3:]
    n = w[0].numel() if not ran.args[6] else w.shape[0] * w[0, 0].numel() // int(ran.args[8])
    return Products(_second(lambda a, b: ran.func(a, b, None, *rest), x, w), n)


def added_product(ran: Ran) -> Products:
    """Terms of a matrix product to which something is added."""
    return Products(_second(torch.matmul, ran.args[1], ran.args[2]), ran.args[1].shape[-1])


def product(ran: Ran) -> Products:
    """Terms of a matrix product."""
    return Products(_second(ran.func, ran.args[0], ran.args[1]), ran.args[0].shape[-1])


def linear(ran: Ran) -> Products:
    """Terms of a linear layer."""
    return Products(_second(torch.nn.functional.linear, ran.args[0], ran.args[1]), ran.args[0].shape[-1])


def average(ran: Ran) -> Products:
    """Terms of an average over windows: of the kernel's numbers, or of as many as an adaptive window takes."""
    x, given, axes = ran.args[0], ran.args[1], int(ran.name[-2])
    if ran.name.startswith("avg"):
        n = int(math.prod(given) ** (axes / len(given)))
    else:
        n = math.prod(-(-n // m) for n, m in zip(x.shape[-axes:], ran.y.shape[-axes:], strict=True))
    return Products(_second(lambda x: ran.func(x, *ran.args[1:]), x) / math.sqrt(n), n, is_average=True)


PRODUCTS = (convolution, added_product, product, linear, average)


def _second(apply: Callable[..., Tensor], *factors: Tensor) -> Tensor:
    """|w|_2 |x|_2, entry by entry, of a sum of products: in float32, scaled so that no square over- or underflows."""
    tops = [float(one.abs().max()) if one.numel() else 1.0 for one in factors]
    tops = [top if 0 < top < math.inf else 1.0 for top in tops]
    squares = [(one / top).float().square() for one, top in zip(factors, tops, strict=True)]
    return apply(*squares).clamp_min(0).sqrt().double() * math.prod(tops)


def are_whole(values: Sequence[Any]) -> bool:
    """Whether all numbers of all tensors are whole."""
    tensors = [one for one in values if isinstance(one, Tensor) and one.is_floating_point()]
    probed = [one.reshape(-1)[:_PROBED] if one.is_contiguous() else one for one in tensors]
    return all(bool((one == one.round()).all()) for each in (probed, tensors) for one in each)


# Other sums.


def total(ran: Ran) -> Errs:
    """Errors of a sum or a mean: the root of the sum of squares, times sqrt(log2 n); nothing where sums are exact."""
    args, y, x = ran.args, ran.y, ran.args[0]
    n = max(1, x.numel() // max(1, y.numel()))
    axes = args[1] if len(args) > 1 and args[1] is not None else None
    keep = bool(args[2]) if len(args) > 2 else False

    def summed(one: Tensor) -> Tensor:
        return one.sum() if axes is None else one.sum(axes, keepdim=keep)

    if are_whole([x]) and float(summed(x.abs()).max()) < WHOLE:
        return Errs(torch.zeros_like(y), is_sum=True, is_once=True)
    root = summed(x.abs().square()).sqrt() * math.sqrt(max(1.0, math.log2(n)))
    return Errs(root / n if ran.name == "mean" else root, is_sum=True)


def cumulative(ran: Ran) -> Errs:
    """Errors of cumulative sums."""
    y = ran.y
    return Errs(
        y.square().cumsum(ran.args[1]).sqrt(), is_once=are_whole([ran.args[0]]) and float(y.abs().max()) < WHOLE
    )


def transform(ran: Ran) -> Errs:
    """Errors of a Fourier transform."""
    y = ran.y.abs()
    return Errs(y.square().mean().sqrt() * math.sqrt(max(1.0, math.log2(y.numel()))) * torch.ones_like(y))


def many(ran: Ran) -> Errs:
    """Errors of a product of numbers."""
    return Errs(ran.y.abs() * math.sqrt(max(1.0, ran.args[0].numel() / ran.y.numel())))


def variance_and_mean(ran: Ran) -> list[Errs]:
    """Errors of a variance and a mean, two results."""
    variance, mean = ran.out
    return [Errs(variance.abs() * math.sqrt(2)), Errs(mean.abs() * math.sqrt(2))]


# Each number by itself.


def rounded(count: int) -> Callable[[Ran], Errs]:
    """Errors of an operation that rounds its result so many times."""
    return lambda ran: Errs(ran.y.abs() * math.sqrt(count), is_once=True)


def added(ran: Ran) -> Errs:
    """Errors of a sum or difference of two, the second perhaps times a factor."""
    y, other, factor = ran.y, ran.args[1], ran.kwargs.get("alpha", 1)
    if factor == 1 or not isinstance(other, Tensor):
        return Errs(y.abs(), is_once=True)
    scaled: Tensor = other * factor
    return Errs((y.square() + scaled.square()).sqrt())


def multiplied(ran: Ran) -> Errs:
    """Errors of a product or quotient; exact where one number is a power of two."""
    second = ran.args[1] if len(ran.args) > 1 else None
    single = float(second) if not isinstance(second, Tensor) and isinstance(second, int | float) else None
    if isinstance(second, Tensor) and second.ndim == 0 and second.is_floating_point():
        single = float(second)
    if single is not None and math.isfinite(single) and math.frexp(single)[0] in (0.5, -0.5):
        return Errs(torch.zeros_like(ran.y), is_exact=True)
    return Errs(ran.y.abs(), is_once=True)


def limited(ran: Ran) -> Errs:
    """Errors of a clamp: its limits, where float32 does not hold them."""
    y = ran.y
    rounds = any(map(_is_rounded, ran.args[1:]))
    return Errs(torch.where(y != ran.args[0], y.abs(), 0.0) if rounds else torch.zeros_like(y), is_once=True)


def filled(ran: Ran) -> Errs:
    """Errors of a tensor of one number: nothing where float32 holds that."""
    if not any(map(_is_rounded, (*ran.args, *ran.kwargs.values()))):
        return Errs(torch.zeros_like(ran.y), is_exact=True)
    return Errs(ran.y.abs(), is_once=True)


def half_exact(ran: Ran) -> Errs:
    """Errors of a function that is x above 0."""
    args, y = ran.args, ran.y
    return Errs(torch.where(args[0] < 0, y.abs(), 0.0) if len(args) < 3 or args[2] == 1 else y.abs(), is_once=True)


def gelu(ran: Ran) -> Errs:
    """Errors of GELU: 1 + erf(x) cancels where x < 0, and erf itself is a polynomial."""
    return Errs(torch.abs(ran.args[0]) * math.sqrt(3), is_once=True)


def log_sum(ran: Ran) -> Errs:
    """Errors of the logarithm of a sum of exponentials."""
    return Errs((1 + ran.y.square()).sqrt())


def _is_rounded(limit: Any) -> bool:
    """Whether a number among the arguments has more digits than float32, in which networks have it."""
    return (
        isinstance(limit, float)
        and math.isfinite(limit)
        and torch.tensor(limit, dtype=torch.float32, device="cpu").item() != limit
    )


# Shared errors.


def softmax(ran: Ran) -> Errs:
    """Errors of a softmax."""
    x, y = ran.args[0], ran.y.abs()
    top = x.amax(ran.args[1], keepdim=True)
    return Errs(y * (2 + (x - top).square()).sqrt(), (Shared(top.shape, torch.ones_like(top), y),))


def log_softmax(ran: Ran) -> Errs:
    """Errors of the logarithm of a softmax."""
    x, y = ran.args[0], ran.y
    one = torch.ones_like(x.narrow(ran.args[1], 0, 1))
    return Errs(y.abs(), (Shared(one.shape, one),))


def normalised(ran: Ran) -> Errs:
    """Errors of a normalisation f x + (b - f m), f = w / d."""
    x, y, args = ran.args[0], ran.y, ran.args
    channels, spread = (1, -1, *[1] * (x.ndim - 2)), Shared.spread
    is_own, n = True, x[0, 0].numel() if x.ndim > 1 and x.numel() else 1
    if ran.name == "native_layer_norm":
        mean, rstd, weight, bias = ran.out[1], ran.out[2], args[2], args[3]
        shape: Sequence[int] = mean.shape
    elif ran.name == "native_group_norm":
        repeats = x.shape[1] // args[6]
        shape = ran.out[1].shape

        def spread(one: Tensor) -> Tensor:
            return one.repeat_interleave(repeats, 1).view(len(x), *channels[1:])

        mean, rstd = map(spread, ran.out[1:3])
        weight, bias = (one if one is None else one.view(channels) for one in (args[1], args[2]))
    else:
        if ran.name in ("native_batch_norm", "_native_batch_norm_legit") and ran.out[1].numel():
            mean, rstd = (one.view(channels) for one in ran.out[1:3])  # an image's own statistics, as instance norm
            n *= len(x)
        else:
            eps = args[6] if ran.name == "_native_batch_norm_legit_no_training" else args[7]
            mean, rstd = args[3].view(channels), (args[4].view(channels) + eps).rsqrt()
            is_own = False
        weight, bias = (one if one is None else one.view(channels) for one in (args[1], args[2]))
        shape = mean.shape
    f = rstd if weight is None else rstd * weight
    of_f, of_m = torch.full_like(mean, 2.0), 2 * mean.square()
    if is_own and ran.is_channels_last and x.ndim > 3 and ran.name != "native_layer_norm":
        far = (mean * rstd).square() if ran.name == "native_group_norm" else 0.0
        of_f = of_f + n / 12 * (1 + far) ** 2
        of_m = of_m + mean.square() * (n / 3) + rstd.square().reciprocal() / 2
    apart, y = (y if bias is None else y - bias).float(), y.float()
    own = torch.hypot(f.float() * x.float(), y)
    of_slope = Shared(shape, of_f.sqrt(), apart, spread)
    return Errs(own, (of_slope, Shared(shape, f.abs() * of_m.sqrt(), None, spread)))


# Numbers between pixels.


def interpolated(ran: Ran) -> Errs:
    """The result, and along each axis the slope of the image times the coordinate, which is rounded three times.

    Cubic weights are rounded thrice, too. Smoothing by a window of 2 s pixels moves each weight by 1 / s^2 of the
    coordinate's error, which is s^(-3/2) of what a slope does, as the differences of pixels vary.
    """
    args, y, is_smooth = ran.args, ran.y, ran.name.endswith("_aa")
    x, found = args[0], y.square() * (3 if "bicubic" in ran.name else 1)
    for place, (n, m) in enumerate(zip(x.shape[2:], y.shape[2:], strict=True)):
        factor = args[3 + place] if len(args) > 3 + place else None
        scale = (n - 1) / max(m - 1, 1) if args[2] else 1 / factor if factor else n / m
        if n == 1 or (scale * _DYADIC).is_integer():
            continue
        slope = x.diff(dim=2 + place, append=x.narrow(2 + place, n - 1, 1)).abs()
        near = torch.nn.functional.interpolate(slope, y.shape[2:], mode="nearest")
        along = torch.arange(m, dtype=y.dtype, device=y.device) * (scale * max(scale, 1.0) ** (-1.5 * is_smooth))
        found = found + 3 * (near * along.view(-1, *[1] * (x.ndim - 3 - place))).square()
    return Errs(found.sqrt())


def sampled(ran: Ran) -> Errs:
    """The same for coordinates that are given: the root mean square of each channel's slope times the coordinate."""
    x, grid, found = ran.args[0], ran.args[1], ran.y.square()
    for place, n in enumerate(x.shape[2:]):
        slope = x.diff(dim=2 + place).square().mean((2, 3), keepdim=True)
        coordinate = (grid[..., 1 - place] + 1).unsqueeze(1) * (n / 2)
        found = found + 3 * slope * coordinate.square()
    return Errs(found.sqrt())
