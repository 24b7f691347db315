"""Operations that move entries, repeat or leave them out, or take maxima of them: each bound goes where the value goes.

A maximum of values moves by at most the largest error among them. A constant is the same in both programs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import Call
from .interval import Interval, UnboundedError, checked

MOVES = (
    *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "repeat"),
    *("permute", "transpose", "t", "movedim", "slice", "select", "narrow", "chunk", "split", "split_with_sizes"),
    *("unbind", "flip", "roll", "clone", "contiguous", "alias", "detach", "lift_fresh_copy", "copy", "slice_scatter"),
    *("select_scatter", "index_select", "cat", "stack", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "repeat_interleave", "tile", "unfold"),
    *(f"max_pool{axes}d" for axes in (1, 2, 3)),
    *(f"adaptive_max_pool{axes}d" for axes in (1, 2, 3)),
    "amax",
)
_SHAPED = ("view", "_unsafe_view")  # the memory layout may differ here


def move(call: Call) -> Any:
    """The operation on each of the bounds."""
    if "dtype" in call.arguments and call.name == "view":
        raise UnboundedError("it reads bits as other numbers")
    if call.name in _SHAPED:
        return call.x.map(lambda bound: bound.reshape(call["size"]))
    parts = call.each("low"), call.each("high"), call.each("error")
    if isinstance(parts[0], Tensor):
        return _finite(Interval(*parts))
    return [_finite(Interval(*part)) if part[0].is_floating_point() else None for part in zip(*parts, strict=True)]


def pad(call: Call) -> Interval:
    """The image with pixels around it, of which constants are the same in both programs.

    Raises:
        UnboundedError: The constant is no number of the dtype.
    """
    value = call.arithmetic.held(call.arguments.get("value") or 0.0)
    if not abs(value) < float("inf"):
        raise UnboundedError(f"it pads with {value}, which is no finite number of {call.arithmetic.dtype}")
    mode, pads = call.arguments.get("mode", "constant"), call["pad"]

    def padded(x: Tensor, value: float) -> Tensor:
        return torch.nn.functional.pad(x, pads, mode, value if mode == "constant" else None)

    x = call.x
    return Interval(padded(x.low, value), padded(x.high, value), padded(x.error, 0.0))


def _finite(interval: Interval) -> Interval:
    """Refuses a window of padding alone, whose maximum is minus infinity."""
    try:
        return checked(interval)
    except UnboundedError:
        raise UnboundedError("a window of its maxima sees padding alone, which is minus infinity") from None
