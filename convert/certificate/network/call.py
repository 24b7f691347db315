"""One operation of a program, with its arguments by the names of its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from ...programs.walk import operator_name
from .interval import EXACT, Arithmetic, Interval, UnboundedError


@dataclass(frozen=True)
class Call:
    """One operation.

    Attributes:
        target: The operator of ATen.
        arguments: Each by its name: an ``Interval``, a tensor of constants, or what is no tensor.
        shape: Shape of the result, or of the first of several.
        arithmetic: Its rounding.
        terms: Roundings of a term of its result, which the table fills in.
    """

    target: torch._ops.OpOverload
    arguments: Mapping[str, Any]
    shape: torch.Size
    arithmetic: Arithmetic
    terms: int = 0

    @classmethod
    def of(
        cls, target: torch._ops.OpOverload, args: Any, kwargs: Any, shape: torch.Size, arithmetic: Arithmetic
    ) -> Call:
        """Names the arguments, and adds those that are left to their defaults."""
        schema = target._schema.arguments
        given = dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs
        named = {argument.name: given.get(argument.name, argument.default_value) for argument in schema}
        return cls(target, named, shape, arithmetic)

    @classmethod
    def at(
        cls, node: fx.Node, args: Any, kwargs: Any, *, repeatable: bool = True, hypothesis: str | None = None
    ) -> Call:
        """A node's operation.

        Raises:
            UnboundedError: Its result is not of floating-point numbers, or its operands' precisions differ.
        """
        value = node.meta["val"]
        first = value[0] if isinstance(value, list | tuple) else value
        if not isinstance(first, Tensor) or not first.dtype.is_floating_point:
            raise UnboundedError(f"no bound is known for {node.name}, which gives no floating-point numbers")
        given = (one.meta.get("val") for one in node.all_input_nodes)
        operands = {one.dtype for one in given if isinstance(one, Tensor) and one.dtype.is_floating_point}
        target: Any = node.target
        is_exact = hypothesis == EXACT
        dtype = torch.float64 if is_exact else first.dtype
        call = cls.of(target, args, kwargs, first.shape, Arithmetic(dtype, repeatable, hypothesis))
        if call.name in ("_to_copy", "to"):
            holds = all(torch.promote_types(dtype, first.dtype) == first.dtype for dtype in operands)
            return replace(call, arithmetic=Arithmetic(torch.float64)) if holds else call  # which rounds nothing
        if operands - {first.dtype}:
            raise UnboundedError(f"{call.name} changes the dtype, or its operands are not of one")
        return call

    @property
    def name(self) -> str:
        """The operator's name (``operator_name``)."""
        return operator_name(self.target)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def x(self) -> Interval:
        """The first argument, a tensor that depends on the images.

        Raises:
            UnboundedError: It is constant.
        """
        found = next(iter(self.arguments.values()))
        if not isinstance(found, Interval):
            raise UnboundedError(f"no bound is known for {self.name} of a constant")
        return found

    def operand(self, value: Any) -> Interval:
        """Bounds on an argument, also on a constant.

        Raises:
            UnboundedError: It is no number.
        """
        if isinstance(value, Interval):
            return value
        if isinstance(value, Tensor):
            if not is_held(value, self.arithmetic.dtype):
                raise UnboundedError(f"{self.arithmetic.dtype} does not hold its operand's integers")
            return Interval.point(value)
        if isinstance(value, int | float):
            return self.arithmetic.scalar(float(value))
        raise UnboundedError(f"no bound is known for an operand of type {type(value).__name__}")

    @property
    def matrices(self) -> list[Any]:
        """The matrices of a matrix product: the one that is added, if any, and the two factors."""
        return list(self.arguments.values())[: 3 if self.name in ("addmm", "baddbmm") else 2]

    @property
    def is_same(self) -> bool:
        """Whether both programs compute it on the same numbers."""
        return all(interval.is_equal for interval in intervals_in(self.arguments.values()))

    def constant(self, name: str) -> Tensor | None:
        """A parameter, a buffer or another constant, on the CPU, or None where there is none.

        Raises:
            UnboundedError: The network computes it.
        """
        found = self.arguments[name]
        if isinstance(found, Interval):
            raise UnboundedError(f"its {name} is computed while it runs")
        return None if found is None else found.detach().cpu()

    def held(self, name: str) -> Tensor | Interval | None:
        """A parameter, a buffer or another constant, on the CPU, or bounds on it where the network computes it."""
        found: Any = self.arguments[name]
        return found.detach().cpu() if isinstance(found, Tensor) else found

    def run(self, first: Tensor) -> Any:
        """The operator with another first argument, and all others as they are."""
        name = next(iter(self.arguments))
        return self._called({**self.arguments, name: first})

    def with_each(
        self, function: Callable[[Interval], Any], constant: Callable[[Tensor], Tensor] = Tensor.double
    ) -> Any:
        """The operator with a function's value in place of every interval, and of every constant tensor."""
        return self._called(self._replaced(function, constant))

    def map(self, function: Callable[[Interval], Interval]) -> Call:
        """The call with a function's value in place of every interval."""
        return replace(self, arguments=self._replaced(function, None))

    def each(self, bound: str) -> Any:
        """The operator with one of the bounds in place of every interval, and of every constant's."""
        return self.with_each(lambda x: getattr(x, bound), lambda x: getattr(Interval.point(x), bound))

    def _replaced(
        self, function: Callable[[Interval], Any], constant: Callable[[Tensor], Tensor] | None
    ) -> dict[str, Any]:
        def replaced(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [replaced(each) for each in value]
            if constant is not None and isinstance(value, Tensor) and value.is_floating_point():
                return constant(value.detach().cpu())  # places among others stay integers
            return function(value) if isinstance(value, Interval) else value

        return {name: replaced(value) for name, value in self.arguments.items()}

    def _called(self, arguments: Mapping[str, Any]) -> Any:
        schema = self.target._schema.arguments
        args = [arguments[argument.name] for argument in schema if not argument.kwarg_only]
        kwargs = {argument.name: arguments[argument.name] for argument in schema if argument.kwarg_only}
        return self.target(*args, **kwargs)


def is_held(values: Tensor, dtype: torch.dtype) -> bool:
    """Whether a precision holds numbers as they are; floating-point numbers are of the precision already."""
    return values.is_floating_point() or bool((values.to(dtype).double() == values.double()).all())


def intervals_in(values: Any) -> list[Interval]:
    """The intervals among arguments, also in lists."""
    found: list[Interval] = []
    for value in values:
        if isinstance(value, Interval):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += intervals_in(value)
    return found
