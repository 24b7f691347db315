"""What pooling makes of bounds: averages and maxima of windows, along one axis to three."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import rearranging as moves
from .call import Call
from .interval import Interval, UnboundedError


def adaptive_average(call: Call) -> Interval:
    """Averages of as many windows as the result has pixels.

    There is one quotient an axis. In half precision, windows along three axes are added up in half precision, so that
    each sum and each quotient is rounded to it; one window of all pixels is not, since torch takes their mean.
    """
    call.ignore("output_size")
    axes = _axes(call)
    is_added_up_narrow = axes == 3 and math.prod(call.shape[-axes:]) > 1
    terms = math.prod(map(_largest_window, call.first.fake.shape[-axes:], call.shape[-axes:]))
    quotients = max(axes, 2)
    narrowings = terms + quotients if is_added_up_narrow else 1
    return moves.averaged(_pooled(call), terms, call.arithmetic, quotients=quotients, narrowings=narrowings)


def average(call: Call) -> Interval:
    """Averages of windows, which may hold zeros of the padding."""
    if call.argument(6, "divisor_override") is not None:
        raise UnboundedError("an average with divisor_override is no average")
    call.ignore("stride", "padding", "ceil_mode", "count_include_pad")
    terms = math.prod(_along_axes(call, call.argument(1, "kernel_size")))
    return moves.averaged(_pooled(call).with_zero(), terms, call.arithmetic)


def adaptive_maximum(call: Call) -> Interval:
    """Maxima of windows, none of which is empty."""
    call.ignore("output_size")
    return _pooled(call)


def maximum(call: Call) -> Interval:
    """Maxima of windows, which are padded with minus infinity.

    Raises:
        UnboundedError: A window sees padding alone.
    """
    call.ignore("stride", "ceil_mode")
    given = call.argument(1, "kernel_size"), call.argument(3, "padding", 0), call.argument(4, "dilation", 1)
    size = call.first.fake.shape[-_axes(call) :]
    if any(map(_sees_padding_alone, size, *(_along_axes(call, one) for one in given))):
        raise UnboundedError("a window of its maxima sees padding alone, which is minus infinity")
    return _pooled(call)


def _axes(call: Call) -> int:
    """Along how many axes a function pools that has their number in its name."""
    return int(call.name.removesuffix("d")[-1])


def _along_axes(call: Call, given: int | Sequence[int]) -> Sequence[int]:
    """A setting for each axis, which may be given as one number or in a list of one."""
    each: Any = [given] if isinstance(given, int) else given
    return list(each) * _axes(call) if len(each) == 1 else each


def _pooled(call: Call) -> Interval:
    """Bounds on what is pooled; without a dimension of images before the channels, dimension 1 is pooled, too."""
    x = call.first
    return x.interval if x.fake.ndim == _axes(call) + 2 else x.interval.merged()


def _largest_window(size: int, windows: int) -> int:
    """The most pixels of an axis in one of so many windows: the i-th is from floor(i s / n) to ceil((i + 1) s / n)."""
    return max((-(-(i + 1) * size // windows) - i * size // windows for i in range(windows)), default=1)


def _sees_padding_alone(size: int, kernel: int, padding: int, dilation: int) -> bool:
    """Whether one of the windows along an axis has no tap on its pixels: the first one, then.

    A window that starts on a pixel has a tap there, and none starts behind the pixels. Taps of one that starts before
    them and has none are dilation > size apart, and there is no other window: that takes
    dilation (kernel - 1) + 1 < size + 2 padding, which is at most size + kernel, as torch refuses more padding.
    """
    return not any(0 <= tap * dilation - padding < size for tap in range(kernel))
