"""What functions and methods, called between the modules, make of spans."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conv2attn.convert.propagation import moves
from conv2attn.convert.propagation.activations import BY_NAME, leaky_relu
from conv2attn.convert.propagation.span import Arithmetic, Span, UnboundedError


@dataclass(eq=False)
class Tracked:
    """A tensor in the traced network.

    Attributes:
        fake: A tensor of its shape, without values.
        span: What is known of the values; an operation in place changes it.
    """

    fake: Tensor
    span: Span


@dataclass(frozen=True)
class Call:
    """One call of a function or a method.

    Attributes:
        name: Its name.
        args: Its arguments: ``Tracked``, and what is no tensor or a constant.
        kwargs: Its keyword arguments.
        shape: The result's shape.
        arithmetic: How it rounds.
    """

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    shape: torch.Size
    arithmetic: Arithmetic

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    @property
    def first(self) -> Tracked:
        """The first argument, a tensor.

        Raises:
            UnboundedError: It is none.
        """
        found = self.argument(0, "input")
        if not isinstance(found, Tracked):
            raise UnboundedError(f"no bound is known for {self.name} of this")
        return found


def bound_function(call: Call) -> Span:
    """Bounds on a function's result.

    Raises:
        UnboundedError: Nothing is known of what it does.
    """
    if call.name in BY_NAME:
        if call.kwargs.get("approximate", "none") != "none":
            raise UnboundedError("no Lipschitz constant is known for GELU with an approximation")
        return BY_NAME[call.name](call.first.span, call.arithmetic)
    if call.name not in RULES:
        raise UnboundedError(f"no bound is known for {call.name}")
    return RULES[call.name](call)


def _operand(value: Any, shape: torch.Size) -> Span:
    """Bounds on an operand of +, - or *, for each channel of a result of this shape if they are known."""
    if isinstance(value, Tracked):
        fits = len(value.fake.shape) == len(shape) and value.fake.shape[1:2] == shape[1:2]
        return value.span if fits else value.span.merged()
    if isinstance(value, int | float):
        return Span.of(float(value), float(value))
    raise UnboundedError(f"no bound is known for an operand of type {type(value).__name__}")


def _operands(call: Call) -> tuple[Span, Span]:
    if call.kwargs:
        raise UnboundedError(f"no bound is known for {call.name} with {', '.join(call.kwargs)}")
    a, b = (_operand(value, call.shape) for value in call.args)
    if len({len(a.low), len(b.low), 1}) > 2:
        return a.merged(), b.merged()
    return a, b


def _add(call: Call) -> Span:
    return moves.added(*_operands(call), call.arithmetic)


def _subtract(call: Call) -> Span:
    return moves.added(*_operands(call), call.arithmetic, sign=-1)


def _multiply(call: Call) -> Span:
    return moves.multiplied(*_operands(call), call.arithmetic)


def _divide(call: Call) -> Span:
    a, b = _operands(call)
    if isinstance(call.args[1], Tracked) or float(b.low.min()) <= 0:
        raise UnboundedError("a quotient by what may be small or negative is not bounded")
    exact = Span(a.low / b.low, a.high / b.low, a.error / b.low) if len(b.low) == 1 and b.low == b.high else None
    if exact is None:
        raise UnboundedError("a quotient by a tensor of different values is not bounded")
    return call.arithmetic.rounded(exact, a.largest / b.low, 2, same=a.is_equal)


def _cat(call: Call) -> Span:
    parts = call.argument(0, "tensors")
    dimension = call.argument(1, "dim", call.kwargs.get("axis", 0))
    if not all(isinstance(part, Tracked) for part in parts):
        raise UnboundedError("it joins a constant to the image")
    return moves.concatenated([part.span for part in parts], [part.fake.shape for part in parts], dimension)


def _same_order(call: Call) -> Span:
    return moves.reshaped(call.first.span, call.first.fake.shape, call.shape)


def _any_order(call: Call) -> Span:
    return call.first.span.merged()


def _unchanged(call: Call) -> Span:
    return call.first.span


def _dropout(call: Call) -> Span:
    if call.argument(2, "training", True):
        raise UnboundedError("dropout draws random numbers while it trains")
    return call.first.span


def _mean(call: Call) -> Span:
    x, before = call.first, call.first.fake.shape
    dimensions = call.argument(1, "dim", tuple(range(len(before))))
    dimensions = [dimensions] if isinstance(dimensions, int) else list(dimensions)
    reduced = {dimension % len(before) for dimension in dimensions}
    kept = x.span if reduced.isdisjoint({0, 1}) else x.span.merged()
    return moves.averaged(kept, math.prod(before[dimension] for dimension in reduced), call.arithmetic)


def _adaptive_average(call: Call) -> Span:
    return moves.averaged(call.first.span, math.prod(call.first.fake.shape[-2:]), call.arithmetic)


def _average_pool(call: Call) -> Span:
    if call.argument(6, "divisor_override") is not None:
        raise UnboundedError("an average with divisor_override is no average")
    size = call.argument(1, "kernel_size")
    count = size * size if isinstance(size, int) else math.prod(size)
    return moves.averaged(call.first.span.with_zero(), count, call.arithmetic)


def _max_pool(call: Call) -> Span:
    return call.first.span


def _interpolate(call: Call) -> Span:
    return moves.interpolated(call.first.span, call.argument(3, "mode", "nearest"), call.arithmetic)


def _leaky_relu(call: Call) -> Span:
    return leaky_relu(call.argument(1, "negative_slope", 0.01))(call.first.span, call.arithmetic)


RULES: dict[str, Callable[[Call], Span]] = {
    **dict.fromkeys(("add", "iadd", "add_"), _add),
    **dict.fromkeys(("sub", "isub", "sub_"), _subtract),
    **dict.fromkeys(("mul", "imul", "mul_"), _multiply),
    **dict.fromkeys(("truediv", "div"), _divide),
    **dict.fromkeys(("cat", "concat"), _cat),
    **dict.fromkeys(("flatten", "reshape", "view", "squeeze", "unsqueeze"), _same_order),
    **dict.fromkeys(("permute", "transpose", "getitem", "chunk", "split", "flip", "roll"), _any_order),
    **dict.fromkeys(("contiguous", "detach", "clone"), _unchanged),
    "dropout": _dropout,
    "mean": _mean,
    "adaptive_avg_pool2d": _adaptive_average,
    "avg_pool2d": _average_pool,
    **dict.fromkeys(("max_pool2d", "adaptive_max_pool2d"), _max_pool),
    "interpolate": _interpolate,
    "leaky_relu": _leaky_relu,
}
