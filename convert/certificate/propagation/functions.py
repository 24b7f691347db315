"""What functions and methods make of intervals; modules are followed down to the functions that they call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from . import pooling
from . import rearranging as moves
from .activations import BY_NAME, GELU, clamped, leaky_relu
from .call import Call
from .interval import Interval, UnboundedError
from .tracked import Tracked, tracked_in
from .weighted import batch_norm, convolution, linear, transposed_convolution

# May give back what they are given, or a view of it, or a copy: it depends on the memory format.
MAY_SHARE = frozenset(
    {"contiguous", "reshape", "flatten", "unflatten", "dropout", "dropout2d", "channel_shuffle", "pad"}
)


def bound_function(call: Call, label: str) -> Interval:
    """Bounds on a function's result.

    Args:
        call: Its call.
        label: What it is called in a reason.

    Raises:
        UnboundedError: Nothing is known of what it does.
    """
    rule = RULES.get(call.name)
    if rule is None:
        raise UnboundedError(f"no bound is known for {label}")
    if not _is_of_one_dtype(call):
        raise UnboundedError(f"{call.name} changes the dtype, or its operands are not of one")
    interval = rule(call)
    call.ignore("inplace", "dim", "dims", "keepdim", "memory_format")
    call.check_all_read()
    return interval


def _is_of_one_dtype(call: Call) -> bool:
    dtypes = {tracked.fake.dtype for tracked in tracked_in((call.args, call.kwargs))}
    return dtypes == {call.arithmetic.dtype} and call.arithmetic.dtype.is_floating_point


def _activation(call: Call) -> Interval:
    return BY_NAME[call.name.removesuffix("_")](call.first.interval, call.arithmetic)


def _gelu(call: Call) -> Interval:
    approximate = call.option("approximate", "none")
    if approximate != "none":
        raise UnboundedError(f"no Lipschitz constant is known for GELU with approximate={approximate!r}")
    return GELU(call.first.interval, call.arithmetic)


def _hardtanh(call: Call) -> Interval:
    given = call.argument(1, "min_val", -1.0), call.argument(2, "max_val", 1.0)
    low, high = (call.arithmetic.held(limit) for limit in given)
    if not (low <= high and low < math.inf and high > -math.inf):
        raise UnboundedError(f"no number of {call.arithmetic.dtype} is between the limits {given[0]} and {given[1]}")
    return clamped(low, high)(call.first.interval, call.arithmetic)


def _operand(value: Any, call: Call) -> Interval:
    """Bounds on an operand of +, - or *, for each channel of a result of this shape if they are known."""
    if isinstance(value, Tracked):
        return value.interval if value.fake.ndim == len(call.shape) else value.interval.merged()
    if isinstance(value, int | float):
        return call.arithmetic.scalar(float(value))
    raise UnboundedError(f"no bound is known for an operand of type {type(value).__name__}")


def _operands(call: Call) -> tuple[Interval, Interval]:
    if len(call.args) + ("other" in call.kwargs) != 2:
        raise UnboundedError(f"no bound is known for {call.name} called like this")
    return _operand(call.first, call), _operand(call.argument(1, "other"), call)


def _add(call: Call) -> Interval:
    return moves.added(*_operands(call), call.arithmetic)


def _subtract(call: Call) -> Interval:
    a, b = _operands(call)
    return moves.added(a, moves.negated(b), call.arithmetic)


def _subtract_from(call: Call) -> Interval:
    a, b = _operands(call)
    return moves.added(b, moves.negated(a), call.arithmetic)


def _multiply(call: Call) -> Interval:
    return moves.multiplied(*_operands(call), call.arithmetic)


def _divide(call: Call) -> Interval:
    a, b = _operands(call)
    # A small number may be taken for 0, and its inverse may overflow.
    if isinstance(call.argument(1, "other"), Tracked) or float(b.low) < call.arithmetic.smallest:
        raise UnboundedError("a quotient by what may be small or negative is not bounded")
    smallest, largest = float(b.low), float(b.high)
    ends = torch.stack([a.low / smallest, a.low / largest, a.high / smallest, a.high / largest])
    lost = call.arithmetic.smallest / smallest + call.arithmetic.smallest * a.largest  # its inverse may be subnormal
    exact = Interval(ends.amin(0), ends.amax(0), a.error / smallest)
    return call.arithmetic.rounded(exact, a.largest / smallest, 2, same=a.is_equal, lost=lost)


def _cat(call: Call) -> Interval:
    parts = call.argument(0, "tensors")
    dimension = call.argument(1, "dim", call.argument(2, "axis", 0))
    return moves.concatenated([part.interval for part in parts], [part.fake.shape for part in parts], dimension)


def _same_order(call: Call) -> Interval:
    call.ignore("start_dim", "end_dim", "shape", "size", "sizes")
    return moves.reshaped(call.first.interval, call.first.fake.shape, call.shape)


def _any_order(call: Call) -> Interval:
    call.ignore("chunks", "split_size", "shifts", "dim0", "dim1")
    return call.first.interval.merged()


def _unchanged(call: Call) -> Interval:
    return call.first.interval


def _dropout(call: Call) -> Interval:
    call.ignore("p")
    if call.argument(2, "training", True):
        raise UnboundedError("dropout draws random numbers while it trains")
    return call.first.interval


def _mean(call: Call) -> Interval:
    x, before = call.first, call.first.fake.shape
    given = call.argument(1, "dim")
    dimensions = [given] if isinstance(given, int) else given or range(len(before))  # none are all
    reduced = {dimension % len(before) for dimension in dimensions}
    kept = x.interval if reduced.isdisjoint({0, 1}) else x.interval.merged()
    return moves.averaged(kept, math.prod(before[dimension] for dimension in reduced), call.arithmetic)


def _interpolate(call: Call) -> Interval:
    call.ignore("size", "scale_factor", "align_corners", "recompute_scale_factor")
    return moves.interpolated(call.first.interval, call.option("mode"), call.arithmetic)


def _shuffle(call: Call) -> Interval:
    x, groups = call.first, call.argument(1, "groups")
    own = x.interval.expanded(x.fake.shape[1])
    return Interval(*(bound.view(groups, -1).T.reshape(-1) for bound in (own.low, own.high, own.error)))


def _pad(call: Call) -> Interval:
    x, mode, value = call.first, call.option("mode"), call.option("value")
    ends = call.argument(1, "pad")  # two for each dimension, from the last on
    kept = x.interval if len(ends) <= 2 * (x.fake.ndim - 2) else x.interval.merged()
    if mode != "constant":
        return kept
    held = call.arithmetic.held(value or 0.0)
    if not math.isfinite(held):
        raise UnboundedError(f"it pads with {value}, which is no finite number of {call.arithmetic.dtype}")
    return kept.joined(Interval.of(held, held))


def _leaky_relu(call: Call) -> Interval:
    return leaky_relu(call.argument(1, "negative_slope", 0.01))(call.first.interval, call.arithmetic)


RULES: dict[str, Callable[[Call], Interval]] = {
    **dict.fromkeys(("relu", "relu_", "relu6", "sigmoid", "sigmoid_", "tanh", "tanh_"), _activation),
    **dict.fromkeys(("hardsigmoid", "hardswish", "silu"), _activation),
    "gelu": _gelu,
    **dict.fromkeys(("hardtanh", "hardtanh_"), _hardtanh),
    **dict.fromkeys(("leaky_relu", "leaky_relu_"), _leaky_relu),
    **dict.fromkeys(("add", "add_"), _add),
    **dict.fromkeys(("sub", "sub_"), _subtract),
    "__rsub__": _subtract_from,
    **dict.fromkeys(("mul", "mul_"), _multiply),
    **dict.fromkeys(("div", "div_"), _divide),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("flatten", "unflatten", "reshape", "view", "squeeze", "unsqueeze"), _same_order),
    **dict.fromkeys(("permute", "transpose", "__getitem__", "chunk", "split", "flip", "roll"), _any_order),
    **dict.fromkeys(("contiguous", "detach", "clone"), _unchanged),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), _dropout),
    "mean": _mean,
    **{f"adaptive_avg_pool{axes}d": pooling.adaptive_average for axes in (1, 2, 3)},
    **{f"avg_pool{axes}d": pooling.average for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d": pooling.adaptive_maximum for axes in (1, 2, 3)},
    **{f"max_pool{axes}d": pooling.maximum for axes in (1, 2, 3)},
    "interpolate": _interpolate,
    "channel_shuffle": _shuffle,
    "pad": _pad,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), transposed_convolution),
    "linear": linear,
    "batch_norm": batch_norm,
}
