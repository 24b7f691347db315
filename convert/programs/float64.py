"""A program in float64: every number as wide as a double, whatever precision the network asks for.

Casts to floating types are lifted to float64, as are the tensors that a network creates and the numbers that it holds,
each when an operation reads it. Casts to integers stay: they are part of the function.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from ..errors import ConversionError, first_line
from .program import Program
from .walk import Walk, copies_of_written, module_of, name_of

CASTS = ("_to_copy", "to", "type_as", "convert_element_type")
_LIFTED = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def lift(value: Any) -> Any:
    """A tensor of floating-point numbers in float64, and float64 in place of a floating dtype; else the value."""
    if isinstance(value, Tensor):
        return value.to(lift(value.dtype))
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else _LIFTED.get(value, value)
    return value


def lifted_arguments(values: Any) -> Any:
    """Arguments of an operation with every tensor and dtype lifted."""
    return tree_map(lift, values)


def real(value: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones; other tensors as they are."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


class Lifted(Walk):
    """One run of a program in float64.

    Args:
        program: The program.
        watched: Operations whose results are kept, in ``seen``.
    """

    def __init__(self, program: Program, watched: frozenset[fx.Node] = frozenset()) -> None:
        super().__init__(program.graph, program.tensors)
        self.program, self.watched = program, watched
        self.seen: dict[fx.Node, Any] = {}

    def outputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The network's outputs, by name; complex numbers as pairs.

        Raises:
            ConversionError: An operation does not run in float64.
        """
        with torch.no_grad(), plainly():
            found = self.program.outputs(self.run(*self.program.inputs(args, kwargs)))
        return {name: real(lift(one)) for name, one in found.items()}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation."""
        found = self.result(node, args, kwargs)
        if node in self.watched:
            self.seen[node] = found
        return found

    def result(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation, of lifted arguments."""
        return evaluated(node, args, kwargs)


def evaluated(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The result of an operation in float64.

    Raises:
        ConversionError: It does not run in float64.
    """
    args, kwargs = lifted_arguments((args, kwargs))
    if node.target is operator.getitem:
        return args[0][args[1]]
    target: Any = node.target
    if target is torch.ops.aten.view.default:
        target = torch.ops.aten.reshape.default  # a lifted tensor may lie otherwise in memory
    if is_cast(node) and node_dtype(node) is not None:
        return lift(args[0].to(torch.float64))
    target = _WITHOUT_DOUBLES.get(name_of(node), target)
    try:
        args, kwargs = copies_of_written(node, args, kwargs)
        return lifted_arguments(target(*args, **kwargs))
    except ConversionError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:  # of torch, and of operators in Python
        at = f"`{module_of(node)}`" if module_of(node) else "the network"
        raise ConversionError(f"{name_of(node)} in {at} does not run in float64: {first_line(error)}") from error


def _grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Products of groups of rows or columns with a matrix each, which torch has for 32 and 16 bits alone."""
    if offs is None:
        found = a @ b
    else:
        ends = offs.tolist()
        starts = [0, *ends[:-1]]
        groups = list(zip(starts, ends, strict=True))
        if a.ndim == 2 and b.ndim == 3:
            parts = [a[start:end] @ b[group] for group, (start, end) in enumerate(groups)]
            found = torch.cat([*parts, a.new_zeros(len(a) - ends[-1], b.shape[-1])])
        elif a.ndim == 3 and b.ndim == 2:
            parts = [a[group] @ b[:, start:end] for group, (start, end) in enumerate(groups)]
            found = torch.cat([*parts, a.new_zeros(a.shape[1], b.shape[1] - ends[-1])], 1)
        else:
            found = torch.stack([a[:, start:end] @ b[start:end] for start, end in groups])
    return found if bias is None else found + bias


_WITHOUT_DOUBLES = {"_grouped_mm": _grouped_mm}


def is_cast(node: fx.Node) -> bool:
    """Whether an operation only changes the type of its numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and name_of(node) in CASTS


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = first_of(node.meta.get("val"))
    return value.dtype if isinstance(value, Tensor) else None


def node_dtype(node: fx.Node) -> torch.dtype | None:
    """The type of floating-point numbers that the network itself gives there, or None for other numbers."""
    found = _dtype(node)
    return found if found is not None and found.is_floating_point else None


def first_of(value: Any) -> Any:
    """The first of several results, or the only one."""
    return value[0] if isinstance(value, list | tuple) and value else value


@contextmanager
def plainly() -> Iterator[None]:
    """Attention by matrix products and a softmax, whose roundings are known, without warnings."""
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")
        yield
