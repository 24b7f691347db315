"""A bound on how far a layer and its convolution can differ, derived and not chosen.

Three parts add up, each for the worst input within a range:

    |fl(Attention) - fl(Conv)|  <=  |Attention - Conv|  +  |fl(Attention) - Attention|  +  |fl(Conv) - Conv|
                                      tail                  rounding_attention             rounding_convolution

``tail.py`` derives the first, ``rounding.py`` the others; each names the claims of ``proofs/`` that it uses. What holds
of the input is its range: two numbers, two for each channel, or what ``measure.py`` finds in data.

Assumed, and nothing else about the order of any sum:

- rounding to nearest, and exp within ``EXP_ULPS`` units in the last place;
- products and sums in the precision of the weights, in at least float32: float16 and bfloat16 are multiplied exactly,
  summed in float32 and rounded once;
- sums of the products themselves. A convolution through Winograd's or a Fourier transform adds other numbers. PyTorch
  without oneDNN takes NNPACK's, and cuDNN may, unless ``torch.backends.nnpack.flags(enabled=False)`` and
  ``torch.backends.cudnn.deterministic`` with ``benchmark`` off say otherwise;
- no TF32, and no sums in less than float32 on a GPU (``torch.backends.cuda.matmul.allow_tf32``,
  ``torch.backends.cudnn.allow_tf32``, ``allow_fp16_reduced_precision_reduction``, ``allow_bf16_...`` are off);
- finite parameters and input, and no overflow.

Where one of these does not hold, nothing is certified; no constant is guessed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from conv2attn.convert.engines import AUTO, check_engine_name
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.protocol import AttentionLayer
from conv2attn.convert.rounding import OUTWARD, absolute_error, attention_error, convolution_error
from conv2attn.convert.spec import ConvSpec
from conv2attn.convert.tail import absolute_products, softmax_tail

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


def certify(
    layer: AttentionLayer, *, input_range: InputRange, engine: str = AUTO, sums: Tensor | None = None
) -> Certificate:
    """Bounds the difference between a layer and the convolution at its kernel taps.

    Args:
        layer: A layer whose heads sit at the kernel's taps, with any alpha.
        input_range: The smallest and the largest value of the input before padding: two numbers for all
            channels, or two sequences with one number a channel.
        engine: Which engine computes the attention; "auto" means any of them.
        sums: The largest sum |w||x| of each output channel, [out_channels], if more is known of the input than its
            range, as ``measure_input`` finds it. It makes the rounding parts smaller where they are relative to it.

    Raises:
        ConversionError: The layer is not the convolution's attention, a parameter is not finite, the range is not
            one, the sums are not, or there is no such engine.
    """
    check_engine_name(engine)
    if layer.content is not None or layer.axis_scores is not None or not layer.regime.at_taps:
        raise ConversionError(
            "only a layer with quadratic scores alone and its heads at the kernel's taps is certified"
        )
    low, high = padded_range(layer.spec, input_range)
    largest, ones = torch.maximum(low.abs(), high.abs()), torch.ones_like(low)
    scale, weights = absolute_products(layer, layer.weight, largest, ones)
    bias = torch.zeros_like(scale) if layer.bias is None else layer.bias.detach().abs().double().cpu()
    if not bool((scale + bias).isfinite().all() and weights.isfinite().all()):
        raise ConversionError("nothing is certified for a layer with NaN or infinite weights")
    seen = scale if sums is None else torch.minimum(scale, _checked_sums(layer.spec, sums))
    reached = seen if layer.regime.is_exact else scale  # soft attention reads other pixels than the convolution
    parts = (
        softmax_tail(layer, high - low),
        absolute_error(layer, reached + bias, weights, attention_error(layer, engine)),
        absolute_error(layer, seen + bias, weights, convolution_error(layer)),
    )
    total = sum(parts[1:], parts[0])
    worst = [float(part.max()) * OUTWARD for part in (total, *parts)]
    return Certificate(worst[0], tuple((total * OUTWARD).tolist()), *worst[1:])


def channel_range(input_range: InputRange, channels: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest value of each channel, [channels] each, in double precision.

    Raises:
        ConversionError: The range is not two finite numbers, or two for each channel, in order.
    """
    low, high = (torch.as_tensor(end, dtype=torch.float64, device="cpu").flatten() for end in input_range)
    if not all(end.numel() in (1, channels) and bool(end.isfinite().all()) for end in (low, high)):
        raise ConversionError(
            f"input_range must be two finite numbers, or two sequences of {channels}; got {input_range}"
        )
    if bool((low > high).any()):
        raise ConversionError(f"input_range must be (low, high) with low <= high; got {input_range}")
    return low.expand(channels), high.expand(channels)


def padded_range(spec: ConvSpec, input_range: InputRange) -> tuple[Tensor, Tensor]:
    """Lowest and highest value of each channel of the padded input, [in_channels] each, in double precision.

    Raises:
        ConversionError: As ``channel_range``.
    """
    low, high = channel_range(input_range, spec.in_channels)
    if spec.padding_mode == "zeros" and any(spec.pads):
        return low.clamp(max=0), high.clamp(min=0)
    return low, high


def _checked_sums(spec: ConvSpec, sums: Tensor) -> Tensor:
    checked = sums.detach().double().cpu()
    if checked.shape != (spec.out_channels,) or not bool((checked >= 0).all()):
        raise ConversionError(f"sums must be {spec.out_channels} numbers that are not negative; got {sums}")
    return checked
