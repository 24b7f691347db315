"""Operations that move entries, repeat or leave them out, or take maxima of them: each bound goes where the value goes.

A maximum of values moves by at most the largest error among them. Near a point it is the value at the place that is
largest there, and half of what others may exceed it by (claim ``chords``, ``proofs/claims/certificate/ranges.py``). A
constant is the same in both programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...bounds.rounding import OUTWARD
from .call import Call, intervals_in
from .interval import U64, Interval, UnboundedError, checked
from .operation import Exact, Local, number, point_of

MOVES = (
    *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "repeat"),
    *("permute", "transpose", "t", "movedim", "slice", "select", "narrow", "chunk", "split", "split_with_sizes"),
    *("unbind", "flip", "roll", "clone", "contiguous", "alias", "detach", "lift_fresh_copy", "slice_scatter"),
    *("select_scatter", "index_select", "index", "index_put", "cat", "stack", "pixel_shuffle", "pixel_unshuffle"),
    *("channel_shuffle", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "repeat_interleave"),
    *("tile", "unfold", "copy", "fill", "reshape_as", "view_as", "expand_as", "where"),
    *(f"max_pool{axes}d" for axes in (1, 2, 3)),
    *(f"adaptive_max_pool{axes}d" for axes in (1, 2, 3)),
    "amax",
)
NEAREST = tuple(f"upsample_nearest{axes}d" for axes in (1, 2, 3))
_SHAPED = ("view", "_unsafe_view", "reshape_as", "view_as")  # the memory layout may differ here


def move(call: Call) -> Any:
    """The operation on each of the bounds."""
    if "dtype" in call.arguments and call.name == "view":
        raise UnboundedError("it reads bits as other numbers")
    if call.name in _SHAPED:
        return call.x.map(lambda bound: bound.reshape(call.shape))
    if call.name == "expand_as":
        return call.x.map(lambda bound: bound.expand(call.shape))
    if call.name in NEAREST:
        check_nearest(call)
    if call.name == "index_put":
        _check_places(call)
    if call.name in _WRITTEN:
        return call.operand(call[_WRITTEN[call.name]]).map(lambda bound: bound.expand(call.shape))
    parts = call.each("low"), call.each("high"), call.each("error")
    if isinstance(parts[0], Tensor):
        return _finite(Interval(*parts))
    return [_finite(Interval(*part)) if part[0].is_floating_point() else None for part in zip(*parts, strict=True)]


_WRITTEN = {"copy": "src", "fill": "value"}  # which argument the result is, in the shape of the first


def _written(call: Call, given: Sequence[Tensor], constant: Callable[[Tensor], Tensor]) -> Tensor:
    """The numbers that are written over the first argument: the last that moves, or a constant."""
    source = call[_WRITTEN[call.name]]
    return given[-1] if isinstance(source, Interval) else constant(number(source))


def check_nearest(call: Call) -> None:
    """Refuses nearest upsampling whose choice of pixels depends on how the choice is computed.

    Output i of m reads pixel floor(i s), s = n / m or the inverse of a factor. torch's contiguous kernels compute s and
    i s in single precision, those of other memory formats and of float64 in double precision.

    Raises:
        UnboundedError: Single, double precision and exact arithmetic do not choose the same pixels.
    """
    axes = int(call.name[-2])
    sizes, counts = call.x.low.shape[-axes:], call.shape[-axes:]
    given = call.arguments.get("scale_factors") or [
        call.arguments.get(name) for name in _SCALES[axes] if name in call.arguments
    ]
    factors = [*given, *[None] * axes][:axes]
    for size, count, factor in zip(sizes, counts, factors, strict=True):
        if not is_chosen_alike(size, count, factor):
            raise UnboundedError(
                f"nearest upsampling from {size} to {count} pixels chooses others in single precision than in exact "
                "arithmetic"
            )


_SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def is_chosen_alike(size: int, count: int, factor: float | None) -> bool:
    """Whether every arithmetic chooses the same pixels for nearest upsampling along an axis."""
    scale = Fraction(size, count) if not factor else 1 / Fraction(factor)
    exact = [min(i * scale.numerator // scale.denominator, size - 1) for i in range(count)]
    places = torch.arange(count, device="cpu")
    for dtype in (torch.float32, torch.float64):
        whole, parts = (torch.tensor(float(one), dtype=dtype, device="cpu") for one in (size, count))
        ratio = whole / parts if not factor else torch.tensor(1 / factor, dtype=dtype, device="cpu")
        if (places.to(dtype) * ratio).floor().long().clamp(max=size - 1).tolist() != exact:
            return False
    return True


def _check_places(call: Call) -> None:
    """Refuses an assignment to places that repeat, of which the last to be written is not said."""
    places = [one for one in call["indices"] if one is not None]
    counted = torch.zeros(call.shape, dtype=torch.float64, device="cpu")
    once = counted.index_put(call["indices"], torch.ones((), dtype=torch.float64, device="cpu"), accumulate=True)
    if call["accumulate"] or not places or float(once.max()) > 1:
        raise UnboundedError("no bound is known for an assignment that adds up, or to places that repeat")


def pad(call: Call) -> Interval:
    """The image with pixels around it, of which constants are the same in both programs.

    Raises:
        UnboundedError: The constant is no number of the dtype.
    """
    value, padded = _padding(call)
    if not abs(value) < math.inf:
        raise UnboundedError(f"it pads with {value}, which is no finite number of {call.arithmetic.dtype}")
    return Interval(padded(call.x.low, value), padded(call.x.high, value), padded(call.x.error, 0.0))


def padded(call: Call) -> Local:
    """Pixels around the image near a point, of which constants do not differ."""
    value, padded = _padding(call)
    return Local(padded(point_of(call).center, value), lambda t: padded(t, 0.0), is_sum=False)


def _padding(call: Call) -> tuple[float, Callable[[Tensor, float], Tensor]]:
    """The number that pixels around the image have, as the dtype holds it, and what adds such pixels."""
    mode, pads = call.arguments.get("mode", "constant"), call["pad"]
    value = call.arithmetic.held(call.arguments.get("value") or 0.0)
    return value, lambda t, value: F.pad(t, pads, mode, value if mode == "constant" else None)


def _finite(interval: Interval) -> Interval:
    """Refuses a window of padding alone, whose maximum is minus infinity."""
    try:
        return checked(interval)
    except UnboundedError:
        raise UnboundedError("a window of its maxima sees padding alone, which is minus infinity") from None


def moved(call: Call) -> Any:
    """Operations that only move numbers; constants among them do not differ."""

    def run(tensors: Sequence[Tensor], constant: Callable[[Tensor], Tensor]) -> Any:
        given = iter(tensors)
        if call.name in _SHAPED:
            return next(given).reshape(call.shape)
        if call.name == "expand_as":
            return next(given).expand(call.shape)
        if call.name in _WRITTEN:
            return _written(call, list(given), constant).expand(call.shape)
        if call.name == "select_scatter":  # of which torch has a wrong gradient under vmap
            whole, part = (
                next(given) if isinstance(call[name], Interval) else constant(number(call[name]))
                for name in ("self", "src")
            )
            dim = call["dim"] % whole.ndim
            at = call["index"] % whole.shape[dim]
            return torch.slice_scatter(whole, part.unsqueeze(dim), dim, at, at + 1)
        return call.with_each(lambda _: next(given), constant)

    found = run([number(one) for one in intervals_in(call.arguments.values())], Tensor.double)
    if isinstance(found, Tensor):
        return Local(found, lambda *ts: run(ts, lambda one: torch.zeros_like(one, dtype=ts[0].dtype)), is_sum=False)

    def one(place: int) -> Local:  # of one tensor: no operation that gives several reads several
        return Local(found[place], lambda t: run([t], torch.zeros_like)[place], is_sum=False)

    return [one(place) for place in range(len(found))]


def unchanged(call: Call) -> Interval:
    """The same numbers.

    Raises:
        UnboundedError: Dropout trains.
    """
    if call.arguments.get("train", False):
        raise UnboundedError("dropout draws random numbers while it trains")
    return call.x


def kept(call: Call) -> Local:
    """The same numbers near a point."""
    return Local(point_of(call).center, lambda t: t, is_sum=False)


MADE = ("arange", "linspace", "full", "full_like", "new_full", "scalar_tensor")


def made(call: Call) -> Exact:
    """Numbers that are counted or given, of which none is read: start + i step, each of two at most twice the result.

    The first operand stands for the exact result, so that its terms are at most 4 times the largest of them.
    """
    return Exact(call.x, torch.full_like(call.x.low, 4 * float(call.x.largest.max())))


def cast(call: Call) -> Exact | Interval:
    """The same numbers in another precision."""
    return call.x if call.arithmetic.dtype == torch.float64 else Exact(call.x, call.x.largest)


def maximum(call: Call) -> Local:
    """Maxima over windows, or over dimensions, near a point."""
    x, gathered = point_of(call), _gathering(call)
    chosen = gathered(x.center, -math.inf).argmax(-1, keepdim=True)
    places = gathered(torch.arange(x.center.numel(), device="cpu").view(x.center.shape), 0).gather(-1, chosen).flatten()

    def take(t: Tensor) -> Tensor:
        return t.flatten().index_select(0, places).view(call.shape)

    others = gathered(x.high, -math.inf).scatter(-1, chosen, -math.inf).amax(-1).view(call.shape)
    value, more = take(x.center), (others - take(x.low)).clamp(min=0)
    rest = more / 2 * OUTWARD + U64 * 4 * value.abs() * (more > 0)
    return Local(value + more / 2, take, rest=rest, is_sum=False, passes=more > 0)


def _gathering(call: Call) -> Callable[[Tensor, float], Tensor]:
    """Function that lays the numbers of each window along a last dimension, with another number for those outside."""
    if call.name == "amax":
        dims = sorted(d % call.x.low.ndim for d in (call["dim"] or range(call.x.low.ndim)))
        return lambda t, fill: t.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    axes = int(call.name[-2])
    sizes, counts = call.x.low.shape[-axes:], call.shape[-axes:]
    along = [_windows_along(call, axis, axes, sizes[axis], counts[axis]) for axis in range(axes)]

    def gathered(t: Tensor, fill: float) -> Tensor:
        before = t.ndim - axes
        for windows in along:  # each axis goes to the end, as windows and their pixels
            t = F.pad(t.movedim(before, -1), (0, 1), value=fill)[..., windows]
        return t.movedim([before + 2 * axis + 1 for axis in range(axes)], list(range(-axes, 0))).flatten(-axes)

    return gathered


def _windows_along(call: Call, axis: int, axes: int, size: int, count: int) -> Tensor:
    """The pixels of an axis in each of its windows, [windows, pixels]; -1 for none."""
    starts = torch.arange(count, device="cpu")
    if call.name.startswith("adaptive"):
        first, last = starts * size // count, -(-(starts + 1) * size // count)
        steps = torch.arange(int((last - first).max()), device="cpu")
        found = first[:, None] + steps
        return found.masked_fill(found >= last[:, None], -1)

    def of_axis(name: str, default: int) -> int:
        given = call.arguments.get(name) or [default]
        return int((list(given) * axes)[axis] if len(given) == 1 else given[axis])

    kernel = of_axis("kernel_size", 1)
    stride, padding, dilation = of_axis("stride", kernel), of_axis("padding", 0), of_axis("dilation", 1)
    found = starts[:, None] * stride - padding + torch.arange(kernel, device="cpu") * dilation
    return found.masked_fill((found < 0) | (found >= size), -1)
