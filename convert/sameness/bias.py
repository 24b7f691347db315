"""Rounding on one side: the mean signed error of results, as cutting digits makes it and rounding to nearest does not.

Results of one side's modules are computed again from what they read there: in float64, and as the other side's own
kernels round. Both mean signed errors are held against their standard errors: that of the result, and that beyond the
kernels' own, whose sums and constants may err to one side, too. Only operations are asked that round and do no more:
sums, products, quotients, roots. Functions that kernels approximate have errors of their own kind in each library.
In 117 honest pairs no result was beyond the kernels' by ``LEAST`` and one standard error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import evaluated, is_cast, lift, node_dtype, plainly
from ..programs.noise import UNITS, Precision
from ..programs.operations import in_words, row
from ..programs.program import Program
from ..programs.walk import MODULES, VALUE, called, name_of
from .given import Inputs
from .recorded import Read
from .stretches import PRODUCTS, named

LEAST = 0.1  # half units in the last place, on the mean
CERTAIN = 4.0  # standard errors, of each of several results
_SEVERAL = 3  # results, at least: of numbers that are nearly the same everywhere, so are their roundings
_COUNTED = 100  # numbers, at least, of a mean
_LARGEST = 4.0  # half units that a result may err by, by its root mean square
_SUMS = ("add", "sub")
_MOVING = ("getitem", "flatten", "unflatten", "contiguous")
_ROUNDING = (*_SUMS, "mul", "div", "square", "pow", "sqrt", "rsqrt", "reciprocal", "mean", "sum")


@dataclass(frozen=True)
class Bias:
    """The mean signed error of a module's result.

    Attributes:
        name: The module.
        mean: In half units in the last place, away from 0 or upwards.
        error: The standard error of that mean.
        is_upwards: Whether upwards, not away from 0.
        side: The side whose result it is.
    """

    name: str
    mean: float
    error: float
    is_upwards: bool
    side: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether it is no chance."""
        return abs(self.mean) > max(LEAST, CERTAIN * self.error)

    @property
    def way(self) -> str:
        """Its direction, in words."""
        return (("up", "down") if self.is_upwards else ("away from 0", "towards 0"))[self.mean < 0]


def biases(
    program: Program, given: Inputs, values: Mapping[str, Read], precision: Precision, *, side: str
) -> tuple[Bias, ...]:
    """Results whose errors are on one side, where half of those of a kind of module err to that side; else none.

    Args:
        program: A network's.
        given: Its inputs.
        values: What reads the results of another's modules, by name.
        precision: The other's.
        side: The other's name.
    """
    modules = named(tuple(values), tuple(program.given), {})
    known = {program.given[module]: (module, values[name]) for name, module in modules.items()}
    ports = program.graph.graph.find_nodes(op="placeholder")
    inputs = dict(zip(ports, program.inputs(given.args, given.kwargs), strict=True))
    groups: dict[Any, list[Bias]] = defaultdict(list)
    with torch.no_grad(), plainly():
        for node, (module, read) in known.items():
            own = _Again(program, known, inputs).of(node)
            one = None if own is None else _bias(module, read(), own, _unit(node, read(), precision))
            if one is not None:
                groups[_kind(node)].append(replace(one, side=side))
    for found in groups.values():
        for way in {one.way for one in found}:
            certain = tuple(one for one in found if one.way == way and one.is_certain)
            if len(certain) >= max(_SEVERAL, len(found) / 2):
                return certain
    return ()


def _is_asked(node: fx.Node) -> bool:
    """Whether an operation rounds and does no more, or only moves numbers."""
    found = row(name_of(node))
    is_moved = (found is not None and found.errs is None) or name_of(node) in _MOVING
    return is_moved or name_of(node) in _ROUNDING or in_words(name_of(node)) in PRODUCTS or is_cast(node)


def _kind(node: fx.Node) -> Any:
    """The class of the innermost module that an operation is in."""
    stack = list((node.meta.get(MODULES) or {}).values())
    return stack[-1][1] if stack else None


def _unit(node: fx.Node, value: Tensor, precision: Precision) -> float:
    """The unit roundoff of a result: of the network's own type where all numbers are such, though stored in another."""
    dtype = node_dtype(node)
    is_held = dtype in UNITS and bool((value.to(dtype) == value).all())
    return precision.units(dtype if is_held else value.dtype)[1]


@dataclass(frozen=True)
class _Value:
    """A result that was computed again.

    Attributes:
        plain: In float64.
        rounded: As the network's own kernels round it.
        size: The largest number that was added, subtracted or multiplied for each number of it.
    """

    plain: Any
    rounded: Any
    size: Any


class _Again:
    """Results of operations that round and do no more, from the other's results."""

    def __init__(
        self, program: Program, known: Mapping[fx.Node, tuple[str, Read]], inputs: Mapping[fx.Node, Tensor]
    ) -> None:
        self._program, self._known, self._inputs = program, known, inputs
        self._dependent = program.dependent()
        self._found: dict[fx.Node, _Value] = {}

    def of(self, node: fx.Node) -> _Value | None:
        """The result of an operation, or None where it reads something else."""
        if not _is_asked(node):
            return None
        try:
            found = self._computed(node)
        except KeyError:
            return None
        return found if isinstance(found.plain, Tensor) else None

    def _computed(self, node: fx.Node) -> _Value:
        read = {one: self._read(one) for one in node.all_input_nodes}
        plain, rounded, size = (
            fx.node.map_arg((node.args, node.kwargs), lambda one, part=part: getattr(read[one], part))  # type: ignore[misc]
            for part in ("plain", "rounded", "size")
        )
        value = evaluated(node, *plain)
        found = row(name_of(node))
        if name_of(node) in _SUMS:
            sizes = [read[one].size for one in node.all_input_nodes if isinstance(read[one].size, Tensor)]
            largest = value.abs()
            for one in sizes:
                largest = torch.maximum(largest, one.abs())
        elif name_of(node) in ("mul", *_MOVING) or (found is not None and found.errs is None):
            largest = evaluated(node, *size)
        else:
            largest = value
        return _Value(value, called(node, *rounded), largest)

    def _read(self, node: fx.Node) -> _Value:
        if node not in self._found:
            self._found[node] = self._leaf(node) or self._inner(node)
        return self._found[node]

    def _leaf(self, node: fx.Node) -> _Value | None:
        """What is not computed: an input, a tensor of the network, a result of the other side."""
        value = self._inputs.get(node)
        if node.op == "get_attr":
            value = self._program.tensors[node.name]
        if node in self._known:
            value = self._known[node][1]()
            if value.shape != node.meta[VALUE].shape:  # of a part of the batch, as where a callable splits it
                raise KeyError(node)
            dtype = node.meta[VALUE].dtype
            value = value.to(dtype)
        return None if value is None else _Value(lift(value), value, lift(value))

    def _inner(self, node: fx.Node) -> _Value:
        if node.op != "call_function":
            raise KeyError(node)
        if node not in self._dependent:  # a constant, which is the network's own
            read = {one: self._read(one).rounded for one in node.all_input_nodes}
            value = called(node, *fx.node.map_arg((node.args, node.kwargs), read.__getitem__))
            return _Value(lift(value), value, lift(value))
        if not _is_asked(node):
            raise KeyError(node)
        return self._computed(node)


def _bias(name: str, value: Tensor, own: _Value, unit: float) -> Bias | None:
    """The mean error of a result; None where it is of another shape, of few numbers, or no rounding of this one.

    Numbers of a channel or a row may share an error. So the standard error is the largest of those that the means along
    each axis give. Numbers that are far smaller than what was added for them are left out, as their last place is not
    that of the roundings.
    """
    plain = own.plain
    if value.shape != plain.shape or not value.is_floating_point():
        return None
    wide = lift(value)
    known = (plain != 0) & wide.isfinite() & plain.isfinite() & (2 * plain.abs() >= own.size.abs())
    if int(known.sum()) < _COUNTED:
        return None
    mantissa, exponent = torch.frexp(torch.where(known, plain, 1.0))
    up, usual = (
        torch.ldexp(torch.where(known, one - plain, 0.0), -exponent).mul(2 / unit) for one in (wide, lift(own.rounded))
    )
    if not bool(up.any()) or float(up[known].square().mean().sqrt()) > _LARGEST:
        return None
    found = []
    for sign in (mantissa.sign(), torch.ones_like(plain)):
        one, beyond = _mean(up * sign, known), _mean((up - usual) * sign, known)
        is_one = one[0] * beyond[0] > 0 and abs(beyond[0]) > max(LEAST, CERTAIN * beyond[1])
        found.append(one if is_one else (0.0, max(one[1], beyond[1])))
    is_upwards = abs(found[1][0]) > abs(found[0][0])
    return Bias(name, *found[is_upwards], is_upwards)


def _mean(values: Tensor, known: Tensor) -> tuple[float, float]:
    """The mean of known values, and its standard error."""
    count = known.sum()
    mean = float(values.sum() / count)
    errors = [float((values[known] - mean).square().mean().sqrt() / count.sqrt())]
    for axis in range(values.ndim if values.ndim > 1 else 0):
        others = [place for place in range(values.ndim) if place != axis]
        numbers = known.sum(others)
        kept = numbers > 0
        if int(kept.sum()) >= 2:
            each = values.sum(others)[kept] / numbers[kept]
            errors.append(float(each.std() / math.sqrt(len(each))))
    return mean, max(errors)
