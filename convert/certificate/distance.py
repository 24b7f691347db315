"""Distance of a trained layer from a convolution: its original one, or any other.

Away from borders a head whose attention goes by position is a convolution with the kernel W_h p_h(z), where p_h is what
it gives to the pixel at offset z if all of Z^n were keys. Compared with a kernel R that reads some offsets,

    D(z) = sum_h W_h p_h(z) - R(z),       s = sum_h W_h - sum_z R(z)

for inputs with |x_c - m_c| <= osc_c / 2, and each output channel,

    | Attention - Conv_R |  <=  sum_c |m_c| |s|  +  osc_c / 2 ( sum_z |D(z)|  +  sum_h (1 - P_h) |W_h| )
                                                                                     +  |bias difference|

P_h is the sum of p_h over offsets that are keys of every query: a softmax over fewer keys gives each 1 / P_h times as
much (``proofs/claims/certificate/frozen_kernel.py``). In exact arithmetic: rounding is not in it, but for that of the
two kernels, which are compared as they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConversionError
from ..heads.encoding import DOUBLE
from ..heads.values import LayerValues
from ..layer.checked import checked_layer
from ..layer.layer import SelfAttention
from .layer import InputRange, padded_range

_BEYOND = 45.0  # exp(-45) of what the nearest pixel gets: what is farther is in the slack
_SLACK = 1e-12  # relative to sum |W|: of probabilities in double precision, and of what is farther
_ENTRIES = 2**24  # numbers of a table of the heads' probabilities; 134 MB


@dataclass(frozen=True)
class Distance:
    """Bound on the difference between a layer and a convolution, for inputs within a range, in exact arithmetic.

    Attributes:
        bound: The largest entry of ``per_channel``.
        per_channel: For each output channel.
    """

    bound: float
    per_channel: tuple[float, ...]


@dataclass(frozen=True)
class Window:
    """Kernel values at the offsets first, ..., last from the query along each axis.

    Attributes:
        kernel: [out_channels, in_channels / groups, *lengths], in double precision.
        first: Offset of the first of them along each axis.
    """

    kernel: Tensor
    first: tuple[int, ...]

    @property
    def last(self) -> tuple[int, ...]:
        """Offset of the last of them along each axis."""
        return tuple(start + length - 1 for start, length in zip(self.first, self.kernel.shape[2:], strict=True))


def distance_from_convolution(
    layer: SelfAttention | LayerValues,
    *,
    input_range: InputRange,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Distance:
    """Bounds the difference between a layer, trained or not, and a convolution of its geometry.

    Args:
        layer: The layer.
        input_range: As for ``certify``.
        weight: The convolution's weight, as its class holds it; by default the layer's.
        bias: Its bias, given with ``weight``; by default the layer's.

    Raises:
        ConversionError: The layer's scores are learned tables or read the image, the convolution has another shape, or
            the range is not one.
    """
    layer = checked_layer(layer)
    spec = layer.spec
    given = layer.weight if weight is None else weight
    if given.shape != layer.weight.shape or (weight is not None and (bias is None) != (layer.bias is None)):
        raise ConversionError(f"the convolution must have a weight {list(layer.weight.shape)} and a bias as the layer")
    taps = torch.zeros(
        *spec.kernel(given).shape[:2], *(reach + 1 for reach in spec.reach), dtype=torch.float64, device="cpu"
    )
    taps[(slice(None), slice(None), *(slice(None, None, step) for step in spec.dilation))] = (
        spec.kernel(given).detach().double().cpu()
    )
    first = tuple(-start for start in spec.middle)
    low, high = padded_range(spec, input_range)
    window = Window(taps, first)
    found = kernel_difference(layer, window, low=low, high=high, keys=(first, window.last))
    if layer.bias is not None and bias is not None:
        found = _known(found + (layer.bias.detach().double() - bias.detach().double()).abs().cpu())
    return Distance(float(found.max()), tuple(found.tolist()))


def kernel_difference(
    layer: LayerValues,
    window: Window,
    *,
    low: Tensor,
    high: Tensor,
    keys: tuple[Sequence[int], Sequence[int]],
    padded: bool = False,
) -> Tensor:
    """The bound above without the biases, [out_channels], for queries whose keys include certain offsets.

    Infinite for weights that are not finite.

    Args:
        layer: The layer.
        window: R.
        low: Lowest value of each channel of the padded input, [in_channels], in double precision.
        high: Highest value, likewise.
        keys: First and last offset along each axis that are keys of each of the queries.
        padded: Whether R may read offsets that are no keys, as padding that the layer does not have; these count once
            more.

    Raises:
        ConversionError: The layer's scores are learned tables or read the image.
    """
    spec, weight = layer.spec, layer.kernel.detach().double().cpu().flatten(2)
    _check_positions_alone(layer)
    size, middle = (high - low) / 2, (high + low).abs() / 2
    absolute = weight.abs()
    shift = (weight.sum(-1) - window.kernel.flatten(2).sum(-1)).abs()
    probabilities, first = _probabilities(layer, window)
    if probabilities is None:
        change = absolute.sum(-1) + window.kernel.flatten(2).abs().sum(-1)
        border = absolute.sum(-1)
    else:
        kernel = torch.tensordot(weight, probabilities.flatten(1), dims=1).unflatten(-1, probabilities.shape[1:])
        _part(kernel, first, window.first, window.last).sub_(window.kernel)
        change = kernel.flatten(2).abs().sum(-1)
        inside = _part(probabilities.unsqueeze(0), first, *keys).flatten(2).sum(2).squeeze(0)
        border = absolute @ (1 - inside)
    if padded:
        outside = window.kernel.abs()
        _part(outside, window.first, *keys).zero_()
        border = border + outside.flatten(2).sum(-1)
    change = change + border
    points = window.kernel[0, 0].numel() + (0 if probabilities is None else probabilities.numel())
    slack = max(_SLACK, 8 * DOUBLE * points)  # half of it for sums over points and heads, in any order
    change, shift = (
        part + slack * (absolute.sum(-1) + window.kernel.abs().flatten(2).sum(-1)) for part in (change, shift)
    )
    groups = spec.groups
    sizes, middles = (part.view(groups, 1, -1) for part in (size, middle))
    changes, shifts = (part.unflatten(0, (groups, -1)) for part in (change, shift))
    found = changes * sizes + shifts * middles
    return _known(found.sum(-1).flatten())


def kernel_at(layer: LayerValues, first: Sequence[int], last: Sequence[int]) -> Tensor:
    """sum_h W_h p_h at the offsets first, ..., last along each axis, of heads that go by position alone.

    Returns:
        [out_channels, in_channels / groups, *lengths], in double precision, on the CPU.

    Raises:
        ConversionError: The layer's scores are learned tables, or its heads reach over too many pixels.
    """
    weight = layer.kernel.detach().double().cpu()
    lengths = [high - low + 1 for low, high in zip(first, last, strict=True)]
    empty = Window(weight.new_zeros(*weight.shape[:2], *lengths), tuple(first))
    probabilities, start = _probabilities(layer, empty)
    if probabilities is None or layer.axis_scores is not None:
        raise ConversionError("the layer's heads reach over too many pixels, or go by learned tables")
    near = _part(probabilities.unsqueeze(0), start, first, last).squeeze(0)
    kernel: Tensor = torch.tensordot(weight.flatten(2), near.flatten(1), dims=1)
    return kernel.view(*weight.shape[:2], *lengths)


def _known(bounds: Tensor) -> Tensor:
    """Replaces bounds by infinity where NaN or infinite weights leave none, so that no tolerance is met."""
    known: Tensor = bounds.nan_to_num(nan=math.inf, posinf=math.inf)
    return known


def _check_positions_alone(layer: LayerValues) -> None:
    """Refuses a layer whose attention does not go by position alone."""
    if layer.axis_scores is not None:
        raise ConversionError("no distance from a convolution is known of learned tables of scores")
    if layer.content is not None and not layer.content.is_off():
        raise ConversionError("no distance from a convolution is known of content terms")


def _probabilities(layer: LayerValues, window: Window) -> tuple[Tensor | None, tuple[int, ...]]:
    """p_h at the offsets that matter, [num_heads, *lengths], and the first offset; None where they are too many.

    With n the integer next to the centre c, a score is taken from that of n before it is multiplied by alpha:

        -alpha (z - c)^2 + alpha (n - c)^2  =  -alpha (z - n) (z + n - 2 c)

    z - n and 2 c are exact, so three roundings are relative to what counts of a score: at most 45 where the probability
    is not beyond, which is then off by less than 3 * 45 * 2^-53 of itself, however large alpha is.
    """
    alpha = torch.tensor(layer.regime.alpha, dtype=torch.float64, device="cpu")
    centers = torch.tensor(layer.regime.centers, dtype=torch.float64, device="cpu")
    margin = math.ceil(math.sqrt(_BEYOND / float(alpha.min()))) + 1
    first = tuple(
        min(math.floor(low), a) - margin for low, a in zip(centers.amin(0).tolist(), window.first, strict=True)
    )
    last = tuple(
        max(math.ceil(high), z) + margin for high, z in zip(centers.amax(0).tolist(), window.last, strict=True)
    )
    lengths = [z - a + 1 for a, z in zip(first, last, strict=True)]
    if len(alpha) * math.prod(lengths) > _ENTRIES:
        return None, first
    found = torch.ones(len(alpha), dtype=torch.float64, device="cpu")
    for axis, (a, length) in enumerate(zip(first, lengths, strict=True)):
        offsets = a + torch.arange(length, dtype=torch.float64, device="cpu")
        center = centers[:, axis, None]
        nearest = center.round()
        scores = -alpha[:, None] * ((offsets - nearest) * (offsets + nearest - 2 * center))
        found = found.unsqueeze(-1) * scores.softmax(1).view(len(alpha), *[1] * axis, -1)
    return found, first


def _part(table: Tensor, start: Sequence[int], first: Sequence[int], last: Sequence[int]) -> Tensor:
    """The entries first, ..., last along each axis of a table [.., .., *lengths] that begins at ``start``: a view."""
    for axis, (begin, low, high) in enumerate(zip(start, first, last, strict=True), start=2):
        begun = min(max(low - begin, 0), table.shape[axis])
        table = table.narrow(axis, begun, max(min(high - begin + 1, table.shape[axis]) - begun, 0))
    return table


def describe_distance(layer: SelfAttention | LayerValues, input_range: InputRange = (-1.0, 1.0)) -> str:
    """Describes a layer's distance from the convolution of its weights, as the end of a sentence; empty if unknown.

    Args:
        layer: The layer.
        input_range: As for ``certify``.
    """
    try:
        bound = distance_from_convolution(layer, input_range=input_range).bound
    except ConversionError:
        return ""
    if not math.isfinite(bound):
        return ""
    return f", at most {bound:.3g} from the convolution of its weights for inputs on {_format_range(input_range)}"


def _format_range(input_range: InputRange) -> str:
    low, high = input_range
    return f"[{low:g}, {high:g}]" if isinstance(low, float) and isinstance(high, float) else "the given range"
