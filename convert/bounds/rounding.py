"""Bounds on the rounding errors of both sides of the certificate.

The model is the standard one, fl(a op b) = (a op b)(1 + e) with |e| <= u. A sum of m products, in any order, errs by
at most gamma_m sum |w||x|, gamma_m = m u / (1 - m u), and sums of sums by gamma_{l + m} (claim ``rounded-sum``).
No bound of another size holds for every order. So the convolution, whose order nobody knows, has

    m = K^2 C_in / groups products and one bias.

Half precision is computed in binary32 and rounded once, but for transposed convolutions: there each tap may be.

In the exact regime all probabilities are 0 and 1, and an engine whose scores would not make them so refuses
(``regime.py``, ``sdpa.py``). The literal, the separable and the sdpa engine then sum over channels first and over heads
afterwards, so that a term goes through C_in / groups + K^2 roundings only; the factored engine calls the convolution.
Where positions are trained or learned tables, the separable engine joins both sums. Each engine names its formula here
(``Engine.error``).

In the soft regime three more errors are relative to sum |w| max |x|: that of the computed probabilities (claims
``softmax-rounding`` and ``score-rounding``), that of leaving out keys that weigh no more than u together (claim
``left-out-keys``), and that of adding up the others (claim ``key-accumulation``). The latter must
not grow with the image. An addition errs by at most u |a + b|, and by at most min(|a|, |b|), since either term is
itself a floating-point number. Call the n keys within radius r of the target near. Of all additions, at most n - 1 join
two partial sums that both hold near keys; the others err, together, by at most twice the weight of the far keys, as
long as at most 1 / (4 u) keys weigh something. So any order gives at most (n - 1) u + 2 far, for any r:
``_accumulation`` takes the best. How many keys weigh something does not depend on the image, because exp(-alpha D^2) is
0 from some distance D on: ``weighing_keys`` counts them, and where they are too many, for a very small alpha in single
precision, no error is known.

Tables of probabilities along one axis may leave out those below 2^-8 u (``NEGLIGIBLE``). At most ``weighing_keys`` of a
row are not 0 anyway, so what is left out is at most 2^-8 u times as many, relative to sum |w| max |x|.

Underflow is absolute. With lambda the smallest normal number, a weight below lambda that is read as 0 loses |w||x|, an
input that is loses at most lambda |w|, and every product and sum at most 5 lambda more (claim ``underflow-errors``),
so that m terms lose at most

    (1 + gamma_m) ( sum_{|w| < lambda} |w||x| + lambda sum |w| + 5 m lambda )

Only the first of these is more than a rounding error of zero, since x may be huge. No partial sum of a side is larger
than (1 + its relative error) times what the error is relative to: where that could overflow, the error is infinite.

The claims are proved in ``proofs/claims/certificate/rounding.py``, ``proofs/claims/certificate/accumulation.py`` and
``proofs/claims/certificate/underflow.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from ..heads.encoding import DOUBLE, FARTHEST_EXACT_CENTER, is_power_of_two
from ..heads.values import LayerValues
from ..spec import ConvSpec

EXP_ULPS = 32  # torch's fastest exp, inside softmax on a CPU, promises 20; underflow adds less than 2^-100

# Covers the rounding of a certificate's own arithmetic: fewer than 2^22 operations on non-negative numbers.
OUTWARD = 1 + 2.0**-30

JOINT_TAPS = (
    7  # most taps along an axis of a stencil for both axes of an image, which adds up all their keys in one sum
)

SMALLEST_ALPHA = 1e-6  # a flatter softmax is not worth a sum over thousands of pixels: nothing is claimed

NEGLIGIBLE = 2.0**-8  # times u: smaller probabilities along one axis may be taken for 0

_NEGLIGIBLE = 746.0  # exp(-746) rounds to 0 in binary64; sums over all integers stop there
_NEGLIGIBLE_IN_SINGLE = 104.0  # the same in binary32

# Scores are at most alpha times this for grids of up to 2^28 pixels a side: sums of squared distances.
_LARGEST_SCORE = 2.0**60


def unit_roundoff(dtype: torch.dtype) -> float:
    """u: half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def left_out(dtype: torch.dtype) -> float:
    """Weight that an engine may leave out of a softmax along one axis, at most u in total."""
    return unit_roundoff(dtype)


def gamma(terms: int, unit: float) -> float:
    """gamma_m = m u / (1 - m u), the relative error of a sum of m products in any order; infinite from m u = 1."""
    return terms * unit / (1 - terms * unit) if terms * unit < 1 else math.inf


@dataclass(frozen=True)
class Sums:
    """Sums that a layer's errors are relative to, for inputs within a range: [out_channels], in double precision.

    Attributes:
        read: sum |w||x| + |b| over the pixels that the convolution reads.
        largest: sum |w| max |x| + |b|, over whatever pixels.
        weights: sum |w|.
        flushed: sum |w| max |x| over the subnormal weights, which may be taken for 0.
        input: max |x|, over all channels.
    """

    read: Tensor
    largest: Tensor
    weights: Tensor
    flushed: Tensor
    input: float


def convolution_rounding(layer: LayerValues, sums: Sums) -> Tensor:
    """Bound on |fl(Conv) - Conv|: [out_channels]; infinite where a sum could overflow."""
    return _absolute_error(layer, sums, sums.read, convolution_error(layer))


def attention_rounding(layer: LayerValues, sums: Sums, relative: float) -> Tensor:
    """Bound on |fl(Attention) - Attention|: [out_channels]; infinite where a score, a value or a sum could overflow.

    Soft attention reads other pixels than the convolution. One-hot attention does not, but multiplies the values of
    all pixels with 0.

    Args:
        layer: The layer.
        sums: The sums that its errors are relative to.
        relative: The engine's relative error.
    """
    computed, output = torch.finfo(layer.regime.dtype), torch.finfo(layer.weight.dtype)
    growth, scores = 1 + relative, max(layer.regime.alpha) * _LARGEST_SCORE
    fits = layer.regime.is_exact or sums.input * growth < output.max
    if not (fits and float(sums.largest.max()) * growth < computed.max and scores < computed.max):
        return torch.full_like(sums.largest, math.inf)
    return _absolute_error(layer, sums, sums.read if layer.regime.is_exact else sums.largest, relative)


def convolution_error(layer: LayerValues) -> float:
    """Largest error of the convolution relative to sum |w||x|, whatever the order of its sum.

    PyTorch's own loops for transposed convolutions round what a tap gives to the layer's precision, and add taps and
    bias there: a term goes through K^2 + 1 roundings more.
    """
    sums, taps = gamma(_terms(layer.spec), unit_roundoff(layer.regime.dtype)), _taps_rounded(layer)
    return _compounded(sums, gamma(taps + 1, unit_roundoff(layer.weight.dtype))) if taps else sums


def literal_error(layer: LayerValues) -> float:
    """Largest error relative to sum |w| max |x|, or sum |w||x| in the exact regime, where values are summed first.

    Infinite where scores r . v cancel.
    """
    if layer.regime.cancels:
        return math.inf
    return staged_error(layer) if layer.regime.is_exact else _worst_head(layer, _literal_error)


def separable_error(layer: LayerValues) -> float:
    """As ``literal_error``, where row tables, channels and column tables come one after the other."""
    if not layer.regime.is_exact:
        return _worst_head(layer, _separable_error)
    return gamma(_separable_terms(layer), unit_roundoff(layer.regime.dtype))


def joined_error(layer: LayerValues) -> float:
    """As ``separable_error``, where sums over heads are joined with those over channels and keys, in any order.

    In the exact regime, that is a sum of the convolution's products, in some order.
    """
    return convolution_error(layer) if layer.regime.is_exact else _worst_head(layer, _joined_error)


def factored_error(layer: LayerValues) -> float:
    """As ``literal_error``, where images are smoothed and then convolved, or convolved alone."""
    return convolution_error(layer) if layer.regime.is_exact else _worst_head(layer, _factored_error)


def staged_error(layer: LayerValues) -> float:
    """Largest error relative to sum |w||x| of one-hot attention that sums over channels, and then over heads."""
    return gamma(_staged_terms(layer.spec), unit_roundoff(layer.regime.dtype))


def _worst_head(layer: LayerValues, error: Callable[[LayerValues, float, float], float]) -> float:
    """The error with the sharpness that makes it largest; infinite where attention is too flat."""
    alphas, unit = set(layer.regime.alpha), unit_roundoff(layer.regime.dtype)
    if not all(alpha >= SMALLEST_ALPHA for alpha in alphas):
        return math.inf
    return max(error(layer, alpha, unit) for alpha in alphas)


def _absolute_error(layer: LayerValues, sums: Sums, scale: Tensor, relative: float) -> Tensor:
    """Absolute error of one side: the relative one, the rounding of the output, and underflow: [out_channels].

    Sums have at most 1 / (4 u) terms, each losing at most 5 lambda, which grow by at most theta_3(alpha) in a stencil;
    at most n + 2 such sums follow each other along n axes, before or after the weights. 2^6 (n + 2) / u covers that.

    Args:
        layer: The layer.
        sums: As above.
        scale: The quantity that ``relative`` is relative to, [out_channels].
        relative: The relative error.
    """
    output, computed = torch.finfo(layer.weight.dtype), torch.finfo(layer.regime.dtype)
    if not (math.isfinite(relative) and float(scale.max()) * (1 + relative) < output.max):
        return torch.full_like(scale, math.inf)
    is_narrowed = layer.weight.dtype != layer.regime.dtype
    narrowing = unit_roundoff(layer.weight.dtype) * (1 + relative) if is_narrowed else 0.0
    losses = 2.0**7 * (max(layer.spec.axes, 2) + 2)  # eps = 2 u; not less than with two axes, as ExactRegime.v has it
    underflow = (1 + relative) * sums.flushed + (1 + sums.weights) * computed.smallest_normal * losses / computed.eps
    if is_narrowed:
        underflow = underflow + (2 + _taps_rounded(layer) + sums.weights) * output.smallest_normal * output.eps
    return scale * (relative + narrowing) + underflow


def _taps_rounded(layer: LayerValues) -> int:
    """Number of taps that the convolution may add up in a narrower precision than that of their products."""
    narrow = layer.weight.dtype != layer.regime.dtype
    return layer.spec.num_heads if layer.spec.transposed and narrow else 0


def _terms(spec: ConvSpec) -> int:
    return spec.num_heads * spec.in_channels // spec.groups + 1


def _separable_terms(layer: LayerValues) -> int:
    """Roundings of a sum over channels and heads: in one sum if heads have tables of their own, which are trained."""
    trained = layer.trains_positions or layer.axis_scores is not None
    return (_terms if trained else _staged_terms)(layer.spec)


def _staged_terms(spec: ConvSpec) -> int:
    return spec.in_channels // spec.groups + spec.num_heads


def _compounded(*errors: float) -> float:
    """(1 + e_1) (1 + e_2) ... - 1, to a few units in its last place: in binary64, 1 + e may be 1."""
    return math.expm1(math.fsum(map(math.log1p, errors)))


def _literal_error(layer: LayerValues, alpha: float, unit: float) -> float:
    """Scores r . v, softmax over all keys, values summed over channels, then over heads and keys."""
    axes, reach = layer.spec.axes, max(math.hypot(*center) for center in layer.regime.centers)
    if reach > FARTHEST_EXACT_CENTER:
        return math.inf
    if is_power_of_two(alpha):
        probabilities = _softmax_error(alpha, 0.0, unit, axes=axes)
    else:
        probabilities = _softmax_error(alpha, _score_error(alpha, reach, axes=axes), DOUBLE, axes=axes)
    values = gamma(layer.spec.in_channels // layer.spec.groups + 2, unit)
    mixing = _accumulation(alpha, unit, axes=axes, copies=layer.spec.num_heads)
    return _compounded(probabilities, unit, values, mixing)


def _separable_error(layer: LayerValues, alpha: float, unit: float) -> float:
    """Tables along all axes, what they leave out, and channels and heads in either order."""
    small = NEGLIGIBLE * unit * weighing_keys(alpha, unit, axes=1)
    passes = [_one_pass(alpha, unit), small] * layer.spec.axes
    return _compounded(*passes, gamma(_separable_terms(layer), unit))


def _joined_error(layer: LayerValues, alpha: float, unit: float) -> float:
    """Tables along every axis, a sum over heads and channels, one over heads and keys, none counted too small."""
    spec = layer.spec
    mixing = gamma(_terms(spec), unit)
    return _compounded(
        *[_one_pass(alpha, unit)] * spec.axes, mixing, _accumulation(alpha, unit, axes=1, copies=spec.num_heads)
    )


def _factored_error(layer: LayerValues, alpha: float, unit: float) -> float:
    """The smoothing and the convolution; what lies between is rounded, twice where channels come first."""
    narrowings = 2 if layer.spec.num_heads == 1 else 1
    narrowing = 0.0 if layer.weight.dtype == layer.regime.dtype else unit_roundoff(layer.weight.dtype)
    smoothing = max(_compounded(*[_one_pass(alpha, unit)] * layer.spec.axes), _joint(alpha, unit))
    return _compounded(smoothing, *[narrowing] * narrowings, gamma(_terms(layer.spec), unit))


def _one_pass(alpha: float, unit: float) -> float:
    """The error of attention along one axis, with a table or with a stencil, both made in double precision."""
    return _compounded(_weighing(alpha, unit), _accumulation(alpha, unit, axes=1))


def _joint(alpha: float, unit: float) -> float:
    """The error of attention along both axes of an image in one sum, of two tables or of two stencils.

    The outer products of two rounded weights, and of two rounded scales, are rounded once more, where the passes round
    once more between them.
    """
    summing = min(gamma(JOINT_TAPS**2, unit), _accumulation(alpha, unit, axes=2))
    return _compounded(*[_weighing(alpha, unit)] * 2, summing)


def _weighing(alpha: float, unit: float) -> float:
    """Errors of the weights of one axis, and of the products with them.

    A product with a table rounds the entry and the product; a stencil rounds the weight, the product, the scale and the
    product with it. Both leave out keys that weigh ``left_out``.
    """
    table = _softmax_error(alpha, 2 * DOUBLE * alpha * moment(alpha, 2), DOUBLE, axes=1)
    return _compounded(table, unit, unit, unit, unit, unit)


def _score_error(alpha: float, reach: float, *, axes: int) -> float:
    """sum_k p_k |error of score k|, for scores r . v in double precision and a centre within ``reach`` pixels.

    A product, a sum for each of n axes, the rounding of v, and the subtraction of the maximum: at most (n + 4) u alpha
    times |delta|^2 + 2 |Delta||delta| + D^2, with |delta| <= D + |Delta| and D the key's distance from the target.
    Moments of D over the probabilities are at most those over exp(-alpha D^2), with D <= |D_1| + ... + |D_n|.
    """
    others = axes * moment(alpha, 0) ** (axes - 1)
    first, second = moment(alpha, 1) * others, moment(alpha, 2) * others
    return (axes + 4) * DOUBLE * alpha * (2 * second + 4 * reach * first + 3 * reach**2)


def _softmax_error(alpha: float, scores: float, unit: float, *, axes: int) -> float:
    """sum_k |fl(p_k) - p_k| of one softmax whose scores err by ``scores``, averaged over p."""
    exponentials = 2 * EXP_ULPS * unit + 1.25 * scores  # e^s - 1 <= 1.25 s
    total = _accumulation(alpha, unit, axes=axes)
    if exponentials >= 0.25 or math.isinf(total):
        return math.inf
    return math.expm1(math.log1p(exponentials) - math.log1p(-exponentials) + math.log1p(unit) - math.log1p(-total))


def weighing_keys(alpha: float, unit: float, *, axes: int) -> int:
    """Number of keys of a head whose probability may be nonzero, in a grid of any size.

    A key at a distance of D pixels gets at most about exp(-alpha D^2), which rounds to 0 from ``ONE_HOT_ALPHA`` on; 1
    more covers the rounding of scores and softmax.
    """
    vanishes = 1 + (_NEGLIGIBLE if unit == DOUBLE else _NEGLIGIBLE_IN_SINGLE)
    side = 2 * math.floor(math.sqrt(vanishes / alpha)) + 1
    return int(side**axes)


@lru_cache(maxsize=64)
def _accumulation(alpha: float, unit: float, *, axes: int, copies: int = 1) -> float:
    """Error of adding up the weighted keys of ``copies`` heads in any order, relative to their absolute sum.

    (near - 1) u + 2 far, for the best box of near keys around the target; infinite if more keys may
    weigh something than the claim ``key-accumulation`` is for. Otherwise it is below 1/4 + 2^-100, by the box
    of all keys that do.
    """
    if copies * weighing_keys(alpha, unit, axes=axes) * unit > 0.25:
        return math.inf
    beyond = accumulate(reversed(powers(alpha, 0)), initial=0.0)  # sums over n > radius, from the smallest up
    mass = moment(alpha, 0) ** (axes - 1)
    best = math.inf
    for radius, far in enumerate(reversed(list(beyond))):
        near = copies * (2 * radius + 1) ** axes
        best = min(best, (near - 1) * unit + 4 * axes * far * mass)
    return best / (1 - best)


def moment(alpha: float, power: int) -> float:
    """sum over all integers n of |n|^power exp(-alpha n^2)."""
    return (power == 0) + 2 * math.fsum(powers(alpha, power))


@lru_cache(maxsize=16)
def powers(alpha: float, power: int) -> tuple[float, ...]:
    """n^power exp(-alpha n^2) for n = 1, 2, ... until the exponential vanishes in double precision."""
    end = math.ceil(math.sqrt(_NEGLIGIBLE / alpha))
    return tuple(n**power * math.exp(-alpha * n * n) for n in range(1, end))
