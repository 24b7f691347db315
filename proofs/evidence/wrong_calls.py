"""Calls that a campaign and the tests leave out: torch may compute them wrongly on some processor.

``docs/wrong-convolutions.md`` has the table. A comparison with a wrong reference says nothing, and some of these calls
crash or never return, so none of them is drawn. The conditions are wider than the faults.
"""

from __future__ import annotations

from ...convert.size import Size
from ...convert.spec import ConvSpec

_WIDE, _FAR, _ONE_VECTOR = 8, 4, 16


def may_be_wrong(spec: ConvSpec, size: Size, dtype: str) -> bool:
    """Whether torch's own call, or its gradients, may be wrong on some processor.

    Args:
        spec: The convolution's geometry.
        size: Size of its input.
        dtype: Precision of input and weights, as ``random_layers.DTYPES`` names it.
    """
    if dtype == "float64":
        return False
    is_half, is_volume = dtype != "float32", spec.axes == 3
    stride, dilation = spec.stride, spec.dilation
    # A transposed convolution is the gradient of a convolution, whose image is its result.
    lengths = spec.output_size(size) if spec.transposed else size
    pads = spec.pads_at(size)
    if spec.transposed:  # what the call crops
        reaches = zip(spec.reach, pads, strict=True)
        pads = tuple((max(0, reach - before), max(0, reach - before)) for reach, (before, _) in reaches)
    spans = [reach + 1 for reach in spec.reach]
    along = list(zip(lengths, spans, stride, map(max, pads), strict=True))
    is_large = all(n >= max(span, step) and zeros < span for n, span, step, zeros in along)
    is_odd = spec.kernel_size[-1] >= _WIDE or stride[-1] >= _FAR or max(dilation[:-1], default=1) > 1
    if dtype == "bfloat16" and (is_odd or not is_large):
        return True
    columns, span, step, zeros = along[-1]
    if (is_volume and not is_large and any(map(any, pads))) or (zeros >= span and columns < step):
        return True
    channels = (spec.out_channels if spec.transposed else spec.in_channels) // spec.groups
    if step > 1 and (is_half or is_volume or channels == 1) and columns + sum(pads[-1]) - span < step:
        return True
    return max(stride) > 1 and spec.num_heads == 1 and spec.groups == 1 and 1 < channels < _ONE_VECTOR
