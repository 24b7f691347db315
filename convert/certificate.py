"""A bound on how far a layer and its convolution can differ, derived and not chosen.

Three parts add up, each for the worst input within a range:

    |fl(Attention) - fl(Conv)|  <=  |Attention - Conv|  +  |fl(Attention) - Attention|  +  |fl(Conv) - Conv|
                                      tail                  rounding_attention             rounding_convolution

**Tail** (exact arithmetic). A head gives its target the weight 1 / sum_k q^(|k - t|^2) >= theta_3(q)^-2, with
q = exp(-alpha), because the keys are some of the points of Z^2. The rest, at most tau = 1 - theta_3(q)^-2,
falls on pixels that differ from the target by at most osc_c = max - min of channel c. So

    tail_o = sum over heads h and channels c of  tau_h |W_{o,c,h}| osc_c

``proofs/tail.py`` derives tau, and tau <= 4 q / (1 + q)^2; ``proofs/factorisation.py`` derives the sum;
``proofs/formal/Theorem1.v`` proves it in Coq.

**Rounding.** With the standard model fl(a op b) = (a op b)(1 + e), |e| <= u, a sum of m products computed in any
order has an error of at most gamma_m sum |w||x|, gamma_m = m u / (1 - m u). The convolution has m = K^2 C_in /
groups products and one bias; so has the attention when all probabilities are exactly 0 or 1.

In the soft regime two more errors are relative to sum |w||x|: that of the computed probabilities (sum over keys
of |fl(p) - p|) and that of adding up keys. The latter must not grow with the image. An addition errs by at most
u |a + b|, and by at most min(|a|, |b|), since either term is itself a floating-point number. Call the n keys within
radius r of the target near. Of all additions, at most n - 1 join two partial sums that both hold near keys; the
others err, together, by at most twice the weight of the far keys (as long as there are fewer than 1 / u keys).
So any order gives at most (n - 1) u + 2 far, for any r: ``_accumulation`` takes the best.

Assumed: rounding to nearest; exp within ``EXP_ULPS`` units in the last place; products and sums accumulated in
at least float32 (not TF32), without Winograd or Fourier transforms; finite parameters and input; no overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from conv2attn.convert.encoding import is_power_of_two
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.protocol import AttentionLayer
from conv2attn.convert.spec import ConvSpec

EXP_ULPS = 32  # torch's fastest exp, inside softmax on a CPU, promises 20

# Covers the rounding of this module's own arithmetic: fewer than 2^22 operations on non-negative numbers.
_OUTWARD = 1 + 2.0**-30

_DOUBLE = 2.0**-53  # unit roundoff of binary64
_NEGLIGIBLE = 746.0  # exp(-746) is below the smallest double; sums over all integers stop there ...
_UNDERFLOW = 2.0**-1060  # ... and what they drop is below this
_SMALLEST_ALPHA = 1e-6  # a flatter softmax is not worth a sum over thousands of pixels: nothing is claimed

InputRange = tuple[float | Sequence[float] | Tensor, float | Sequence[float] | Tensor]


@dataclass(frozen=True)
class Certificate:
    """How far a layer and its convolution can differ on inputs within a range.

    Attributes:
        bound: The largest entry of ``per_channel``.
        per_channel: Bound on |fl(Attention) - fl(Conv)| for each output channel.
        tail: The largest softmax tail: bounds |Attention - Conv| in exact arithmetic.
        rounding_attention: The largest bound on |fl(Attention) - Attention|.
        rounding_convolution: The largest bound on |fl(Conv) - Conv|.
    """

    bound: float
    per_channel: tuple[float, ...]
    tail: float
    rounding_attention: float
    rounding_convolution: float

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data, without the single channels."""
        return {key: value for key, value in asdict(self).items() if key != "per_channel"}


def certify(layer: AttentionLayer, *, input_range: InputRange) -> Certificate:
    """Bounds the difference between a layer and the convolution at its kernel taps.

    Args:
        layer: A layer whose heads sit at the kernel's taps, with any alpha, in any engine.
        input_range: The smallest and the largest value of the input before padding: two numbers for all
            channels, or two sequences with one number a channel.

    Raises:
        ConversionError: The layer is not the convolution's attention, a parameter is not finite, or the range
            is not one.
    """
    if layer.content is not None or layer.axis_scores is not None or not layer.regime.at_taps:
        raise ConversionError(
            "only a layer with quadratic scores alone and its heads at the kernel's taps is certified"
        )
    low, high = _input_bounds(layer.spec, input_range)
    tail, scale = _weighted_sums(layer, high - low, torch.maximum(low.abs(), high.abs()))
    if layer.bias is not None:
        scale = scale + layer.bias.detach().abs().double().cpu()
    if not bool(tail.isfinite().all() and scale.isfinite().all()):
        raise ConversionError("nothing is certified for a layer with NaN or infinite weights")
    attention = _rounding(layer, scale, _attention_error(layer))
    convolution = _rounding(layer, scale, gamma(_terms(layer.spec), unit_roundoff(layer.regime.dtype)))
    total = tail + attention + convolution
    worst = [float(part.max()) * _OUTWARD for part in (total, tail, attention, convolution)]
    per_channel = tuple((total * _OUTWARD).tolist())
    return Certificate(worst[0], per_channel, *worst[1:])


def tail_fraction(alpha: float) -> float:
    """tau = 1 - theta_3(exp(-alpha))^-2: most of a head's attention that can miss its target, for any image size."""
    if alpha < _SMALLEST_ALPHA:
        return 1.0
    rest = 2 * math.fsum(_powers(alpha, 0)) + _UNDERFLOW
    return min(rest * (2 + rest) / (1 + rest) ** 2 * _OUTWARD, 1.0)


def tail_per_unit(layer: AttentionLayer) -> float:
    """The softmax tail for an input whose channels vary by at most 1, padding included."""
    unit = torch.ones(layer.spec.in_channels, dtype=torch.float64)
    return float(_weighted_sums(layer, unit, unit)[0].max()) * _OUTWARD


def _weighted_sums(layer: AttentionLayer, varies: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """sum_{c,h} |W_{o,c,h}| tau_h varies_c and sum_{c,h} |W_{o,c,h}| largest_c, rounded up: [out_channels] each.

    Args:
        layer: The layer.
        varies: How much each input channel varies, [in_channels], in double precision.
        largest: The largest absolute value of each input channel, likewise.
    """
    tau = [tail_fraction(alpha) for alpha in layer.regime.alpha]
    if layer.regime.shared_alpha is not None:
        tails, sums = _absolute_products(layer, layer.weight, varies, largest)
        return tails * tau[0], sums
    weight = layer.weight.double()
    by_head = weight * weight.new_tensor(tau).view(layer.spec.kernel_size)
    return _absolute_products(layer, by_head, varies)[0], _absolute_products(layer, weight, largest)[0]


def _absolute_products(layer: AttentionLayer, weight: Tensor, *per_input: Tensor) -> tuple[Tensor, ...]:
    """sum_{c,h} |W_{o,c,h}| r_c for several r, each [out_channels], rounded up, in double precision.

    A large network's conversion waits for this, so it is one matrix product in the weight's own precision, at least
    single, to which the error of its sums and of rounding r is added. Each r is scaled to at most 1, so that nothing
    overflows.
    """
    groups, dtype = layer.spec.groups, torch.promote_types(weight.dtype, torch.float32)
    absolute = torch.unflatten(weight.detach().abs().to(dtype).flatten(1), 0, (groups, -1))
    scales = [float(ranges.max()) or 1.0 for ranges in per_input]
    columns = torch.stack([ranges / scale for ranges, scale in zip(per_input, scales, strict=True)], dim=-1)
    vectors = columns.to(absolute).repeat_interleave(layer.spec.num_heads, dim=0)
    products = (absolute @ torch.unflatten(vectors, 0, (groups, -1))).flatten(0, 1).cpu().double()
    upward = 1 + gamma(absolute.shape[-1] + 2, unit_roundoff(dtype))
    return tuple(products[:, number] * scale * upward for number, scale in enumerate(scales))


def unit_roundoff(dtype: torch.dtype) -> float:
    """u: half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def gamma(terms: int, unit: float) -> float:
    """gamma_m = m u / (1 - m u), the relative error of a sum of m products in any order; infinite from m u = 1."""
    return terms * unit / (1 - terms * unit) if terms * unit < 1 else math.inf


def _input_bounds(spec: ConvSpec, input_range: InputRange) -> tuple[Tensor, Tensor]:
    """Lowest and highest value of each channel of the padded input, [in_channels] each."""
    low, high = (torch.as_tensor(end, dtype=torch.float64).flatten().cpu() for end in input_range)
    if not all(end.numel() in (1, spec.in_channels) and bool(end.isfinite().all()) for end in (low, high)):
        raise ConversionError(
            f"input_range must be two finite numbers, or two sequences of {spec.in_channels}; got {input_range}"
        )
    low, high = low.expand(spec.in_channels), high.expand(spec.in_channels)
    if bool((low > high).any()):
        raise ConversionError(f"input_range must be (low, high) with low <= high; got {input_range}")
    if spec.padding_mode == "zeros" and any(spec.pads):
        return low.clamp(max=0), high.clamp(min=0)
    return low, high


def _terms(spec: ConvSpec) -> int:
    return spec.num_heads * spec.in_channels // spec.groups + 1


def _rounding(layer: AttentionLayer, scale: Tensor, relative: float) -> Tensor:
    """Absolute error [out_channels] of one side: relative error, rounding of the output, and underflow."""
    if not math.isfinite(relative) or float(scale.max()) * (1 + relative) >= torch.finfo(layer.regime.dtype).max:
        return torch.full_like(scale, math.inf)
    output = torch.finfo(layer.weight.dtype)
    computed = torch.finfo(layer.regime.dtype)
    narrowing = unit_roundoff(layer.weight.dtype) * (1 + relative) if output.dtype != computed.dtype else 0.0
    underflow = 2.0**26 * computed.smallest_normal + output.smallest_normal * output.eps
    return scale * (relative + narrowing) + underflow


def _attention_error(layer: AttentionLayer) -> float:
    """Largest error of any engine relative to sum |w||x|."""
    unit = unit_roundoff(layer.regime.dtype)
    if layer.regime.is_exact:
        return gamma(_terms(layer.spec), unit)
    alphas = set(layer.regime.alpha)
    if min(alphas) < _SMALLEST_ALPHA:
        return math.inf
    literal = max(_literal_error(layer, alpha, unit) for alpha in alphas)
    factored = _factored_error(layer, alphas.pop(), unit) if len(alphas) == 1 else 0.0
    return max(literal, factored)


def _literal_error(layer: AttentionLayer, alpha: float, unit: float) -> float:
    """Scores r . v, softmax over all keys, values summed over channels, then over heads and keys."""
    reach = max(math.hypot(*center) for center in layer.regime.centers)
    if is_power_of_two(alpha):
        probabilities = _softmax_error(alpha, 0.0, unit, axes=2)
    else:
        probabilities = _softmax_error(alpha, _score_error(alpha, reach), _DOUBLE, axes=2)
    values = gamma(layer.spec.in_channels // layer.spec.groups + 2, unit)
    mixing = _accumulation(alpha, unit, axes=2, copies=layer.spec.num_heads)
    return (1 + probabilities) * (1 + unit) * (1 + values) * (1 + mixing) - 1


def _factored_error(layer: AttentionLayer, alpha: float, unit: float) -> float:
    """Two smoothing passes, with tables or with stencils, then the convolution.

    A product with a table rounds the entry and the product; a stencil rounds the weight, the product, the scale and
    the product with it. Tables and stencils are made in double precision.
    """
    table = _softmax_error(alpha, 2 * _DOUBLE * alpha * _moment(alpha, 2), _DOUBLE, axes=1)
    one_pass = (1 + table) * (1 + unit) ** 4 * (1 + _accumulation(alpha, unit, axes=1))
    narrowing = 1 + unit_roundoff(layer.weight.dtype)
    return one_pass**2 * narrowing * (1 + gamma(_terms(layer.spec), unit)) - 1


def _score_error(alpha: float, reach: float) -> float:
    """sum_k p_k |error of score k|, for scores r . v in double precision and a centre within ``reach`` pixels.

    Three products, two sums, the rounding of v, and the subtraction of the maximum: at most 6 u alpha times
    |delta|^2 + 2 |Delta||delta| + D^2, with |delta| <= D + |Delta| and D the key's distance from the target.
    Moments of D over the probabilities are at most those over exp(-alpha D^2), with D <= |D_1| + |D_2|.
    """
    first = 2 * _moment(alpha, 1) * _moment(alpha, 0)
    second = 2 * _moment(alpha, 2) * _moment(alpha, 0)
    return 6 * _DOUBLE * alpha * (2 * second + 4 * reach * first + 3 * reach**2)


def _softmax_error(alpha: float, scores: float, unit: float, *, axes: int) -> float:
    """sum_k |fl(p_k) - p_k| of one softmax whose scores err by ``scores``, averaged over p."""
    exponentials = 2 * EXP_ULPS * unit + 1.25 * scores + 2.0**-100  # e^s - 1 <= 1.25 s; 2^-100: underflow
    total = _accumulation(alpha, unit, axes=axes)
    if exponentials >= 0.25 or total >= 1:
        return math.inf
    return (1 + exponentials) / (1 - exponentials) * (1 + unit) / (1 - total) - 1


def _accumulation(alpha: float, unit: float, *, axes: int, copies: int = 1) -> float:
    """Error of adding up the weighted keys of ``copies`` heads in any order, relative to their absolute sum.

    (near - 1) u + 2 far, for the best square (or interval) of near keys around the target.
    """
    terms = list(_powers(alpha, 0))
    far, mass, best = 2 * math.fsum(terms), _moment(alpha, 0) if axes == 2 else 1.0, math.inf
    for radius, term in enumerate([0.0, *terms]):
        far -= 2 * term
        near = copies * (2 * radius + 1) ** axes
        best = min(best, (near - 1) * unit + 2 * axes * max(far, 0.0) * mass + 2.0**-60 * unit)
    return best / (1 - best) if best < 1 else math.inf


def _moment(alpha: float, power: int) -> float:
    """sum over all integers n of |n|^power exp(-alpha n^2)."""
    return (power == 0) + 2 * math.fsum(_powers(alpha, power))


def _powers(alpha: float, power: int) -> Iterator[float]:
    """n^power exp(-alpha n^2) for n = 1, 2, ... until the exponential vanishes in double precision."""
    last = math.ceil(math.sqrt(_NEGLIGIBLE / alpha)) + 1
    return (n**power * math.exp(-alpha * n * n) for n in range(1, last + 1))
