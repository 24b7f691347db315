"""A proved bound on the difference between a layer and its convolution, for every input within a range.

Three parts add up, each for the worst input within the range:

    |fl(Attention) - fl(Conv)|  <=  |Attention - Conv|  +  |fl(Attention) - Attention|  +  |fl(Conv) - Conv|
                                      tail                  rounding_attention             rounding_convolution

``tail.py`` derives the first, ``rounding.py`` the others; each names the claims of ``proofs/`` that it uses. What holds
of the input is its range: two numbers, two for each channel, or what ``data.py`` finds in data.

Assumed, and nothing else about the order of any sum:

- rounding to nearest, and exp within ``EXP_ULPS`` units in the last place;
- products and sums in the precision of the weights, in at least float32: float16 and bfloat16 are multiplied exactly,
  summed in float32 and rounded once;
- sums of the products themselves. A convolution through Winograd's or a Fourier transform adds other numbers. PyTorch
  without oneDNN takes NNPACK's, and cuDNN may, unless ``torch.backends.nnpack.flags(enabled=False)`` and
  ``torch.backends.cudnn.deterministic`` with ``benchmark`` off say otherwise;
- no TF32, no bfloat16 in place of float32, and no sums in less than float32 (on a GPU
  ``torch.backends.cuda.matmul.allow_tf32``, ``torch.backends.cudnn.allow_tf32``,
  ``allow_fp16_reduced_precision_reduction``, ``allow_bf16_...`` are off; on a CPU, where oneDNN may round to bfloat16,
  ``torch.set_float32_matmul_precision`` and every ``fp32_precision`` are as they are at first);
- finite parameters and input, and key grids of at most 2^28 pixels a side. An engine whose own scores would not be
  one-hot within these, as it computes them, refuses: the literal one layers (``encoding.smallest_gap``), the sdpa one
  grids.

Where one of these does not hold, nothing is certified; no constant is guessed for it. Where a score, a product or a sum
could overflow, the bound is infinite. Subnormal numbers count as numbers that a processor may take for zero
(``underflow.py``).

A bound above the largest output says nothing, since a layer whose outputs are all 0 would be within it. Beyond
``USELESS`` times the largest absolute value of an output, texts say so in place of the number; data keep the number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_range_end, as_tensor
from ..bounds.rounding import OUTWARD, Sums, attention_rounding, convolution_rounding
from ..bounds.tail import absolute_products, softmax_tail
from ..bounds.underflow import is_subnormal, magnitudes
from ..context import autocast_dtype
from ..engines import AUTO, check_engine_name, engine_error
from ..errors import ConversionError
from ..heads.values import LayerValues
from ..layer.checked import checked_layer
from ..layer.layer import SelfAttention
from ..spec import ConvSpec

USELESS = 1.0


def number(value: float) -> str:
    """A difference or a bound in two digits, the one form that people see."""
    return f"{value:.2g}" if value == 0 or 1e-2 <= abs(value) < 100 or not math.isfinite(value) else f"{value:.1e}"


def is_useful(bound: float | None, outputs: float | None) -> bool:
    """Whether a bound is finite and at most the largest absolute output; None stands for an unknown number."""
    return bound is not None and math.isfinite(bound) and (outputs is None or bound <= USELESS * outputs)


def format_bound(bound: float | None, outputs: float | None) -> str:
    """Formats a bound for people.

    Args:
        bound: The bound, or None if there is no finite one.
        outputs: The largest absolute value of an output, or None if that is not known.
    """
    if bound is None or not math.isfinite(bound):
        return "no finite bound"
    if outputs is None or is_useful(bound, outputs):
        return number(bound)
    return f"no useful worst case ({number(bound)}; outputs reach {number(outputs)})"


InputRange = tuple[float | Sequence[float] | Tensor, float | Sequence[float] | Tensor]


@dataclass(frozen=True)
class Certificate:
    """Bound on the difference between a layer and its convolution, for inputs within a range.

    Attributes:
        bound: The largest entry of ``per_channel``.
        per_channel: Bound on |fl(Attention) - fl(Conv)| for each output channel.
        tail: The largest softmax tail: bounds |Attention - Conv| in exact arithmetic.
        rounding_attention: The largest bound on |fl(Attention) - Attention|.
        rounding_convolution: The largest bound on |fl(Conv) - Conv|.
        outputs: The largest absolute value of an output, in exact arithmetic; a larger bound is not useful
            (``is_useful``).
    """

    bound: float
    per_channel: tuple[float, ...]
    tail: float
    rounding_attention: float
    rounding_convolution: float
    outputs: float = math.inf

    def __str__(self) -> str:
        """The bound and its parts."""
        parts = {
            "attention beside the tap's pixel": self.tail,
            "rounding of the attention": self.rounding_attention,
            "rounding of the convolution": self.rounding_convolution,
        }
        return "\n".join(
            [
                f"worst case for any input within the range: {self.in_words}",
                *(f"  {what}: {number(part)}" for what, part in parts.items()),
            ]
        )

    @property
    def in_words(self) -> str:
        """The bound for people."""
        return format_bound(self.bound, self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data, without the single channels."""
        return {key: value for key, value in asdict(self).items() if key != "per_channel"}


@dataclass(frozen=True)
class LayerComparison:
    """Comparison of one attention layer with its convolution on the given images.

    Attributes:
        name: Fully qualified name.
        own: Largest |attention - convolution| on the same input.
        bound: The layer's certificate for the measured input; NaN if the input or the layer's weights were not finite,
            also after autocast rounded them.
        inherited: Largest difference that the convolution makes of the difference in its input.
        total: Largest difference between the layer and the convolution, each in its own network.
        outputs: Largest absolute value of the convolution's outputs; a larger bound is not useful (``is_useful``).
        note: That the convolution's own call is wrong on this processor, where that is why the bound is exceeded.
    """

    name: str
    own: float
    bound: float
    inherited: float
    total: float
    outputs: float
    note: str | None = None

    def joined(self, other: LayerComparison) -> LayerComparison:
        """The larger of each number, or NaN where one is."""
        pairs = zip(self._numbers, other._numbers, strict=True)
        own, bound, inherited, total, outputs = (math.nan if math.isnan(a + b) else max(a, b) for a, b in pairs)
        return LayerComparison(self.name, own, bound, inherited, total, outputs, self.note or other.note)

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self.own, self.bound, self.inherited, self.total, self.outputs

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)


def certify(
    layer: SelfAttention | LayerValues, *, input_range: InputRange, engine: str = AUTO, sums: Tensor | None = None
) -> Certificate:
    """Bounds the difference between a layer and the convolution at its kernel taps.

    Args:
        layer: A layer whose heads sit at the kernel's taps, with any alpha.
        input_range: The smallest and the largest value of the input before padding: two numbers for all
            channels, or two sequences with one number a channel.
        engine: Engine that computes the attention; "auto" means any that does not refuse the layer. The bound of one
            that refuses it, or that says nothing of its rounding, is infinite.
        sums: The largest sum |w||x| of each output channel, [out_channels], if more is known of the input than its
            range, as ``measure_input`` finds it. It makes the rounding parts smaller where they are relative to it.

    Raises:
        ConversionError: The layer is not the convolution's attention, a parameter is not finite, alpha is not positive,
            the range is not one, the sums are not, or there is no such engine; or autocast is on, which makes another
            layer of it (``agreement/layers.py`` measures that one).

    Examples:
        >>> layer = c2a.attention_from_conv(torch.nn.Conv2d(3, 8, kernel_size=3), alpha=8.0)
        >>> c2a.certify(layer, input_range=(0, 1)).bound < 0.1
        True
    """
    check_engine_name(engine)
    values = checked_layer(layer)
    return certify_error(values, engine_error(values, engine), input_range=input_range, sums=sums)


def certify_error(
    layer: LayerValues, relative: float, *, input_range: InputRange, sums: Tensor | None = None
) -> Certificate:
    """As ``certify``, for any computation of the attention whose relative error is known."""
    layer = _certifiable(layer)
    low, high = padded_range(layer.spec, input_range)
    largest = _sums(layer, torch.maximum(low.abs(), high.abs()), sums)
    parts = _parts(layer, largest, softmax_tail(layer, _variation(low, high)), relative)
    total = _total(parts)
    worst = [float(part.max()) for part in (*parts, largest.read)]
    return Certificate(float(total.max()), tuple(total.tolist()), *worst)


def pixel_errors(layer: LayerValues, read: Tensor, *, input_range: InputRange) -> tuple[float, Tensor, Tensor, Tensor]:
    """The parts of a certificate at every pixel of an output, by whichever engine.

    Args:
        layer: The layer.
        read: sum |w||x| + |b| at each, [out_channels, pixels], in double precision.
        input_range: As for ``certify``.

    Returns:
        The certificate for the range, wherever in it the input is; the tail, [out_channels, 1]; the rounding of
        attention and that of the convolution, [out_channels, pixels].

    Raises:
        ConversionError: As ``certify``.
    """
    layer = _certifiable(layer)
    low, high = padded_range(layer.spec, input_range)
    whole, relative = _sums(layer, torch.maximum(low.abs(), high.abs()), None), engine_error(layer, AUTO)
    tail = softmax_tail(layer, _variation(low, high))
    bound = float(_total(_parts(layer, whole, tail, relative)).max())
    largest, weights, flushed = (part.unsqueeze(1) for part in (whole.largest, whole.weights, whole.flushed))
    sums = Sums(read, largest, weights, flushed, whole.input)
    _, attention, convolution = _parts(layer, sums, tail, relative)
    return bound, tail.unsqueeze(1) * OUTWARD, attention.expand_as(read), convolution.expand_as(read)


def _parts(layer: LayerValues, sums: Sums, tail: Tensor, relative: float) -> tuple[Tensor, Tensor, Tensor]:
    """The tail, the rounding of attention and that of the convolution, as ``sums`` are shaped."""
    found = tail, attention_rounding(layer, sums, relative), convolution_rounding(layer, sums)
    one, other, last = (part.nan_to_num(nan=math.inf, posinf=math.inf) * OUTWARD for part in found)  # 0 * inf is a NaN
    return one, other, last


def _total(parts: Sequence[Tensor]) -> Tensor:
    return (parts[0] + parts[1] + parts[2]) * OUTWARD


def _certifiable(layer: LayerValues) -> LayerValues:
    """The layer, refused where nothing is certified of it."""
    dtype = autocast_dtype(layer.weight.device)
    if dtype is not None and layer.weight.dtype != torch.float64:  # which autocast leaves as it is
        raise ConversionError(
            f"autocast to {dtype} is on, under which a layer rounds its weights and its input: certify it outside of "
            "autocast, or measure it with compare_layers under autocast"
        )
    if layer.content is not None or layer.axis_scores is not None or not layer.regime.at_taps:
        raise ConversionError(
            "only a layer with quadratic scores alone and its heads at the kernel's taps is certified"
        )
    parameters = (layer.weight, *(() if layer.bias is None else (layer.bias,)))
    if not all(bool(parameter.detach().isfinite().all()) for parameter in parameters):
        raise ConversionError("nothing is certified for a layer with NaN or infinite weights")
    return layer


def _sums(layer: LayerValues, largest: Tensor, measured: Tensor | None) -> Sums:
    """Sums that rounding errors are relative to, for inputs of at most these absolute values, [in_channels]."""
    products, weights = absolute_products(layer, layer.kernel, largest, torch.ones_like(largest))
    bias = torch.zeros_like(products) if layer.bias is None else magnitudes(layer.bias)
    read = products if measured is None else torch.minimum(products, _checked_sums(layer.spec, measured))
    flushed, small = torch.zeros_like(products), is_subnormal(layer.kernel)
    if bool(small.any()):
        (flushed,) = absolute_products(layer, small.double() * torch.finfo(layer.regime.dtype).smallest_normal, largest)
    return Sums(read + bias, products + bias, weights, flushed, float(largest.max()))


def _variation(low: Tensor, high: Tensor) -> Tensor:
    """high - low, which the processor may take for 0 where it is subnormal."""
    return torch.where(high > low, (high - low).clamp(min=torch.finfo(low.dtype).smallest_normal), 0.0)


def channel_range(input_range: InputRange, channels: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest value of each channel, [channels] each, in double precision.

    Raises:
        ConversionError: The range is not two finite numbers, or two for each channel, in order.
    """
    if not isinstance(input_range, tuple | list) or len(input_range) != 2:
        raise ConversionError(f"input_range must be a pair (low, high); got {input_range!r:.80}")
    low, high = (as_range_end(end) for end in input_range)
    if not all(end.numel() in (1, channels) and bool(end.isfinite().all()) for end in (low, high)):
        raise ConversionError(
            f"input_range must be two finite numbers, or two sequences of {channels}; got {_shown(low)} and "
            f"{_shown(high)}"
        )
    if bool((low > high).any()):
        raise ConversionError(f"input_range must be (low, high) with low <= high; got {_shown(low)} and {_shown(high)}")
    return low.expand(channels), high.expand(channels)


def padded_range(spec: ConvSpec, input_range: InputRange) -> tuple[Tensor, Tensor]:
    """Lowest and highest value of each channel of the padded input, [in_channels] each, in double precision.

    Raises:
        ConversionError: As ``channel_range``.
    """
    low, high = channel_range(input_range, spec.in_channels)
    if spec.adds_zeros:
        return low.clamp(max=0), high.clamp(min=0)
    return low, high


def _checked_sums(spec: ConvSpec, sums: Tensor) -> Tensor:
    checked = as_tensor(sums, "sums").detach().double().cpu()
    if checked.shape != (spec.out_channels,) or not bool((checked >= 0).all()):
        raise ConversionError(
            f"sums must be {spec.out_channels} numbers that are not negative; got {list(checked.shape)}"
        )
    return checked


def _shown(end: Tensor) -> str:
    """One end of a range, in an error."""
    return f"{end.item():g}" if end.numel() == 1 else f"{end.numel()} numbers"
