"""From trained attention back to the smallest convolution within a tolerance of it.

Away from borders, a layer whose heads go by position is a convolution with the kernel sum_h W_h p_h(delta) over all of
Z^n. The frozen convolution keeps the offsets of a window, in which the query's pixel lies as in the layer; what the
window leaves out is the *cut-off*, which the tolerance is for. At a border the layer's softmax has fewer keys, and the
convolution reads padding that the layer has not: the *border* bound, for every query, includes both.
``convert/certificate/distance.py`` derives the bounds, ``proofs/claims/certificate/frozen_kernel.py`` proves them.

A layer whose padding depends on its input's size becomes a convolution that pads so, of PyTorch alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..convert.arguments import as_number
from ..convert.certificate.distance import Window, kernel_at, kernel_difference
from ..convert.certificate.layer import InputRange, number, padded_range
from ..convert.errors import ConversionError, NotAConvolutionError, Problem
from ..convert.layer.checked import checked_model
from ..convert.layer.layer import SelfAttention
from ..convert.layer.spare import LOOKS, UNGRAFT
from ..convert.network.grafted import equip
from ..convert.network.modules import modules_of, replace, unguard
from ..convert.spec import CONVOLUTIONS, Convolution, ConvSpec


class SameConv(nn.modules.conv._ConvNd):
    """Pads with zeros, so that a kernel of ``span`` pixels has an output for every stride pixels, and convolves.

    Args:
        span: Along each axis; the convolution's own kernel is larger by twice its own padding.
        odd_first: Whether an odd pixel comes before the axis.
        options: As for the class of PyTorch.
    """

    def __init__(self, *, span: tuple[int, ...], odd_first: bool, **options: Any) -> None:
        super().__init__(**options)
        self.span, self.odd_first = span, odd_first

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of the padded input, [batch, in_channels, *size]."""
        pads: list[int] = []
        for length, stride, span in zip(input.shape[2:], self.stride, self.span, strict=True):
            added = max((-(-length // stride) - 1) * stride + span - length, 0)
            before = (added + self.odd_first) // 2
            pads = [before, added - before, *pads]
        return super().forward(F.pad(input, pads))  # type: ignore[no-any-return]


class SameConv1d(SameConv, nn.Conv1d):
    """Convolution of sequences, padded so."""


class SameConv2d(SameConv, nn.Conv2d):
    """Convolution of images, padded so."""


class SameConv3d(SameConv, nn.Conv3d):
    """Convolution of volumes, padded so."""


SAME: dict[int, type[nn.Module]] = {1: SameConv1d, 2: SameConv2d, 3: SameConv3d}
"""The classes by the number of their axes."""


INPUT_RANGE = -1.0, 1.0
LARGEST = 31  # pixels that a kernel may reach beyond the layer's own, on each side


@dataclass(frozen=True)
class FreezeCertificate:
    """Bound on a frozen convolution's distance from its attention, in exact arithmetic, for inputs within a range.

    Attributes:
        kernel_size: Of the convolution.
        cut_off: Bound for queries whose window lies within the layer's padded input; at most the tolerance.
        border: Bound for every query.
    """

    kernel_size: tuple[int, ...]
    cut_off: float
    border: float


@dataclass(frozen=True)
class FrozenLayer:
    """A layer that became a convolution.

    Attributes:
        names: Its names in the model; empty for a layer alone.
        convolution: ``nn.Conv1d``, ``nn.Conv2d`` or ``nn.Conv3d``, one of their transposed forms, or of ``SAME``.
        certificate: Bound on its distance from the layer.
    """

    names: tuple[str, ...]
    convolution: Convolution
    certificate: FreezeCertificate

    def __str__(self) -> str:
        """The kernel, and the bounds on what it leaves out."""
        name, size = ", ".join(self.names) or "the model itself", "x".join(map(str, self.certificate.kernel_size))
        away, anywhere = number(self.certificate.cut_off), number(self.certificate.border)
        return f"{name}: {size} kernel; worst case {away} away from borders, {anywhere} anywhere"


@dataclass(frozen=True)
class FrozenModel:
    """A copy of a model, with a convolution in place of each attention layer."""

    model: nn.Module
    layers: tuple[FrozenLayer, ...]

    def __str__(self) -> str:
        """A line for each layer."""
        return "\n".join(map(str, self.layers))


@torch.inference_mode(False)
def freeze(model: nn.Module, tolerance: float, *, input_range: InputRange = INPUT_RANGE) -> FrozenModel:
    """Replaces every attention layer of a model by the smallest convolution within a tolerance of it.

    Args:
        model: A model with attention layers, or one layer.
        tolerance: Largest cut-off of a layer, for inputs within the range.
        input_range: The smallest and largest value of every layer's input, or a pair of numbers for each channel.

    Raises:
        NotAConvolutionError: Layers look at the image to decide where to look, or have learned tables, all of them
            named; or the model has no attention layer.
        ConversionError: The tolerance is not positive, or no kernel meets it that reaches ``LARGEST`` pixels further.

    Examples:
        >>> model = c2a.melt(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()), alpha=4.0)
        >>> c2a.freeze(model, tolerance=1.0).model[0].kernel_size
        (3, 3)
    """
    layers = modules_of(checked_model(model), SelfAttention)
    reasons = ((names[0], unfrozen(layer)) for names, layer in layers.items())
    problems = [Problem(name, reason) for name, reason in reasons if reason is not None]
    if problems or not layers:
        listed = "; ".join(f"{problem.name or 'the layer'}: {problem.reason}" for problem in problems)
        sentence = f"nothing is frozen: {listed or 'the model has no attention layer: melt it first'}"
        if any(problem.reason == LOOKS for problem in problems):
            raise NotAConvolutionError(sentence, cure=UNGRAFT)
        advice = "; leave such layers out of melt; if nothing was trained, conv2attn restore gives the CNN back"
        raise NotAConvolutionError(sentence + advice * bool(problems))
    frozen = copy.deepcopy(model)
    found = []
    for names, layer in modules_of(frozen, SelfAttention).items():
        made = freeze_layer(layer, tolerance, input_range=input_range)
        frozen = replace(frozen, names, layer, made.convolution)
        found.append(FrozenLayer(names, made.convolution, made.certificate))
    unguard(frozen)
    equip(frozen)
    return FrozenModel(frozen, tuple(found))


def unfrozen(layer: SelfAttention) -> str | None:
    """Why a layer cannot be frozen, or None if it can."""
    if not layer.spare_heads_are_off():
        return LOOKS
    if layer.content is not None and not layer.content.is_off():
        return "it looks at the image to decide where to look"
    if layer.axis_scores is not None:
        return "its scores are learned tables"
    if (layer.spec.is_dynamic and layer.spec.padding_mode != "zeros") or (
        layer.spec.transposed and layer.spec.is_uneven
    ):
        return "its padding is one that no convolution of PyTorch has"
    return None


def freeze_layer(layer: SelfAttention, tolerance: float, *, input_range: InputRange = INPUT_RANGE) -> FrozenLayer:
    """The smallest convolution within a tolerance: along no axis could its kernel be smaller.

    Args:
        layer: A layer that ``unfrozen`` has nothing against.
        tolerance: As for ``freeze``.
        input_range: As for ``freeze``.

    Raises:
        ConversionError: As ``freeze``.
    """
    if not as_number(tolerance, "tolerance") > 0:
        raise ConversionError(f"tolerance must be positive; got {tolerance:g}")
    spec = layer.spec
    least = [max(0, -(-(sum(pads) - reach) // 2)) for pads, reach in zip(_replaced(spec), spec.reach, strict=True)]
    padding = list(least)
    while (reached := _difference(layer, padding, input_range)) > tolerance:
        padding = [each + 1 for each in padding]
        if padding[0] > least[0] + LARGEST:
            raise ConversionError(
                f"no kernel of up to {padding[0] - 1} pixels of padding meets the tolerance {tolerance:g}; the largest "
                f"tried is within {reached:.3g}"
            )
    for axis, smallest in enumerate(least):
        while padding[axis] > smallest:
            smaller = [each - (number == axis) for number, each in enumerate(padding)]
            if _difference(layer, smaller, input_range) > tolerance:
                break
            padding = smaller
    return FrozenLayer((), frozen_convolution(layer, padding), certificate(layer, padding, input_range=input_range))


def certificate(layer: SelfAttention, padding: Sequence[int], *, input_range: InputRange) -> FreezeCertificate:
    """Bounds the distance of the convolution with this padding from its layer."""
    cut_off, border = (_difference(layer, padding, input_range, borders=each) for each in (False, True))
    return FreezeCertificate(tuple(_window(layer, padding).kernel.shape[2:]), cut_off, border)


@torch.no_grad()
def _difference(
    layer: SelfAttention, padding: Sequence[int], input_range: InputRange, *, borders: bool = False
) -> float:
    """Bounds the distance of the convolution with this padding from its layer, at borders or away from them."""
    spec, window = layer.spec, _window(layer, padding)
    low, high = padded_range(spec, input_range)
    if any(padding) and spec.padding_mode == "zeros":
        low, high = low.clamp(max=0), high.clamp(min=0)
    taps = tuple(-start for start in spec.middle), tuple(r - m for r, m in zip(spec.reach, spec.middle, strict=True))
    both = tuple(map(min, taps[0], window.first)), tuple(map(max, taps[1], window.last))
    keys = taps if borders else both
    return float(kernel_difference(layer.values(), window, low=low, high=high, keys=keys, padded=borders).max())


@torch.no_grad()
def frozen_convolution(layer: SelfAttention, padding: Sequence[int]) -> Convolution:
    """The convolution of the layer's outputs with so many pixels of padding along each axis, as ``_replaced`` says."""
    spec, kernel = layer.spec, _window(layer, padding).kernel
    options: dict[str, Any] = {
        "in_channels": spec.in_channels,
        "out_channels": spec.out_channels,
        "kernel_size": tuple(kernel.shape[2:]),
        "stride": spec.stride,
        "padding": tuple(padding),
        "groups": spec.groups,
        "bias": layer.bias is not None,
        "padding_mode": spec.padding_mode,
        "device": layer.weight.device,
        "dtype": layer.weight.dtype,
    }
    kind: Any = CONVOLUTIONS[spec.axes, spec.transposed]
    if spec.is_dynamic:
        span = tuple(reach + 1 for reach in spec.reach)
        kind = partial(SAME[spec.axes], span=span, odd_first=spec.padding == "same_lower")
    elif spec.transposed:  # it crops what padding adds to its stuffed input less
        cropped = cast(tuple[int, ...], spec.padding)
        options["padding"] = tuple(crop + more for crop, more in zip(cropped, padding, strict=True))
        options["output_padding"] = spec.output_padding
        kernel = spec.kernel(kernel)  # exchanging channels and flipping taps once more gives the class's weight
    conv = kind(**options)
    conv.weight.copy_(kernel)
    if layer.bias is not None and conv.bias is not None:
        conv.bias.copy_(layer.bias)
    conv.train(layer.training)
    return cast(Convolution, conv)


def _replaced(spec: ConvSpec) -> tuple[tuple[int, int], ...]:
    """Pixels before and after each axis in whose place a frozen convolution has its padding.

    A transposed convolution's stuffed input, and an input padded by its size, keep theirs: padding is added to these.
    """
    return ((0, 0),) * spec.axes if spec.transposed or spec.is_dynamic else spec.pads


def _window(layer: SelfAttention, padding: Sequence[int]) -> Window:
    """The kernel at the offsets that a convolution of this padding reads, as it is stored in the layer's precision."""
    first, last = _offsets(layer.spec, padding)
    kernel = kernel_at(layer.values(), first, last).to(layer.weight.dtype)
    return Window(kernel.double(), first)


def _offsets(spec: ConvSpec, padding: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First and last offset from the query along each axis.

    Query i sits at s i + m of the padded input, m pixels after the first tap; a convolution with padding p' in place of
    (p, q) begins its window p' - p pixels further outside, and ends it p' - q further, so the outputs are as many.
    """
    along = list(zip(padding, _replaced(spec), spec.middle, spec.reach, strict=True))
    first = tuple(-(new - before + middle) for new, (before, _), middle, _ in along)
    return first, tuple(new - after + reach - middle for new, (_, after), middle, reach in along)
