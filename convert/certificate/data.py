"""What a layer's input was in data: the range of each channel, and the sums that rounding is relative to.

A range that somebody states is often wider than what data does, and the largest sum |w||x| that a range allows is
larger still than any that occurs. Certified with what was measured, a bound holds for the inputs that were seen, and
for every input within the same range and sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import image_batches
from ..attention.checked import checked_layer
from ..attention.layer import SelfAttention2d
from ..bounds.rounding import OUTWARD
from ..bounds.subnormal import magnitudes
from ..engines import AUTO
from ..errors import ConversionError, GeometryError
from ..spec import ConvSpec, Size
from .layer import Certificate, certify


@dataclass(frozen=True)
class MeasuredInput:
    """What was seen of a layer's input.

    Attributes:
        low: Smallest value of each channel of the padded input, [in_channels], in double precision.
        high: Largest value, likewise.
        sums: Largest sum |w||x| of each output channel, without the bias, [out_channels], likewise.
    """

    low: Tensor
    high: Tensor
    sums: Tensor

    @property
    def input_range(self) -> tuple[Tensor, Tensor]:
        """The range, as ``certify`` takes it."""
        return self.low, self.high

    def joined(self, other: MeasuredInput) -> MeasuredInput:
        """What was seen in both."""
        return MeasuredInput(
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            torch.maximum(self.sums, other.sums),
        )


def measure_input(layer: SelfAttention2d, batches: Iterable[Tensor]) -> MeasuredInput:
    """Measures the padded input of a layer: zeros that padding adds count as values.

    Args:
        layer: The layer.
        batches: Its inputs, [batch, in_channels, rows, columns] each, or tuples that start with them.

    Raises:
        ConversionError: There is no batch, its shape does not fit, or a value is not finite.
    """
    checked_layer(layer)
    seen: MeasuredInput | None = None
    for batch in image_batches(batches):
        measured = _measured(layer, batch.detach())
        seen = measured if seen is None else seen.joined(measured)
    if seen is None:
        raise ConversionError("nothing was measured: there is no batch of inputs")
    return seen


def certify_data(layer: SelfAttention2d, batches: Iterable[Tensor], *, engine: str = AUTO) -> Certificate:
    """Bounds the difference between a layer and its convolution on the inputs that are given.

    Args:
        layer: As for ``certify``.
        batches: As for ``measure_input``.
        engine: As for ``certify``.

    Raises:
        ConversionError: As ``certify`` and ``measure_input``.
    """
    return certify_measured(layer, measure_input(layer, batches), engine=engine)


def certify_measured(layer: SelfAttention2d, measured: MeasuredInput, *, engine: str = AUTO) -> Certificate:
    """Bounds the difference on all inputs within what was measured."""
    return certify(layer, input_range=measured.input_range, engine=engine, sums=measured.sums)


@torch.no_grad()
def _measured(layer: SelfAttention2d, batch: Tensor) -> MeasuredInput:
    spec = layer.spec
    if batch.ndim not in (3, 4) or batch.shape[-3] != spec.in_channels:
        raise GeometryError(f"inputs must be [batch, {spec.in_channels}, rows, columns]; got {list(batch.shape)}")
    spec.output_size(Size(*batch.shape[-2:]))
    padded = spec.pad(batch if batch.ndim == 4 else batch.unsqueeze(0)).double()
    if not bool(padded.isfinite().all()):
        raise ConversionError("nothing is certified for an input with NaN or infinite values")
    sums = _absolute_sums(spec, magnitudes(layer.weight).to(padded.device), padded.abs())
    return MeasuredInput(padded.amin((0, 2, 3)).cpu(), padded.amax((0, 2, 3)).cpu(), sums.amax((0, 2, 3)).cpu())


def _absolute_sums(spec: ConvSpec, weight: Tensor, padded: Tensor) -> Tensor:
    """sum |w||x| of every output, in double precision, rounded up."""
    return F.conv2d(padded, weight, None, spec.stride, 0, spec.dilation, spec.groups) * OUTWARD
