"""A layer's input measured on data: the range of each channel, and the sums that rounding is relative to.

A range that somebody states is often wider than what data does, and the largest sum |w||x| that a range allows is
larger still than any that occurs. Certified with what was measured, a bound holds for the inputs that were seen, and
for every input within the same range and sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import Size, image_batches
from ..bounds.rounding import OUTWARD
from ..bounds.underflow import magnitudes
from ..engines import AUTO
from ..engines.convolution import Geometry, convolve
from ..errors import ConversionError, GeometryError
from ..heads.values import LayerValues
from ..layer.checked import checked_layer
from ..layer.layer import SelfAttention
from ..spec import ConvSpec, batch_shape
from .layer import Certificate, certify


@dataclass(frozen=True)
class MeasuredInput:
    """Range and sums of a layer's measured input.

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
        """The union of both measurements."""
        return MeasuredInput(
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            torch.maximum(self.sums, other.sums),
        )


def measure_input(layer: SelfAttention | LayerValues, batches: Iterable[Tensor]) -> MeasuredInput:
    """Measures the padded input of a layer: zeros that padding adds count as values.

    Args:
        layer: The layer.
        batches: Its inputs, [batch, in_channels, *size] each, or tuples that start with them.

    Raises:
        ConversionError: There is no batch, one holds no image, its shape does not fit, or a value is not finite.
    """
    values = checked_layer(layer)
    seen: MeasuredInput | None = None
    for batch in image_batches(batches):
        measured = _measured(values, batch.detach())
        seen = measured if seen is None else seen.joined(measured)
    if seen is None:
        raise ConversionError("nothing was measured: there is no batch of inputs")
    return seen


def certify_data(layer: SelfAttention, batches: Iterable[Tensor], *, engine: str = AUTO) -> Certificate:
    """Bounds the difference between a layer and its convolution on the given inputs.

    Args:
        layer: As for ``certify``.
        batches: As for ``measure_input``.
        engine: As for ``certify``.

    Raises:
        ConversionError: As ``certify`` and ``measure_input``.
    """
    return certify_measured(layer, measure_input(layer, batches), engine=engine)


def certify_measured(layer: SelfAttention | LayerValues, measured: MeasuredInput, *, engine: str = AUTO) -> Certificate:
    """Bounds the difference on all inputs within the measured range and sums."""
    return certify(layer, input_range=measured.input_range, engine=engine, sums=measured.sums)


def _measured(layer: LayerValues, batch: Tensor) -> MeasuredInput:
    spec = layer.spec
    missing = spec.axes + 2 - batch.ndim
    if missing not in (0, 1) or batch.shape[-spec.axes - 1] != spec.in_channels:
        raise GeometryError(f"inputs must be {batch_shape(spec)}; got {list(batch.shape)}")
    spec.output_size(Size(*batch.shape[-spec.axes :]))
    images = batch.unsqueeze(0) if missing else batch
    if not len(images):
        raise ConversionError("nothing was measured: a batch holds no image")
    padded = spec.pad(images).double()
    if not bool(padded.isfinite().all()):
        raise ConversionError("nothing is certified for an input with NaN or infinite values")
    sums = convolve_padded(spec, padded.abs(), magnitudes(layer.kernel).to(padded.device)) * OUTWARD
    kept = (0, *range(2, padded.ndim))
    return MeasuredInput(padded.amin(kept).cpu(), padded.amax(kept).cpu(), sums.amax(kept).cpu())


def convolve_padded(spec: ConvSpec, padded: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution of a geometry, transposed or not, as one over the padded input.

    Args:
        spec: The geometry.
        padded: As ``ConvSpec.pad`` gives it, [batch, in_channels, *padded size].
        kernel: As ``ConvSpec.kernel`` gives it, in the same dtype.
        bias: [out_channels], likewise, or None.
    """
    return convolve(padded, kernel, bias, Geometry(spec.query_stride, (0,) * spec.axes, spec.dilation, spec.groups))
