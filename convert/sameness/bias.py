"""Rounding on one side: the mean signed error of sums, as cutting digits makes it and rounding to nearest does not.

A sum of two numbers rounds once, so its errors say how it is rounded. Sums of one side's own results (residual
additions, and casts) are computed again in float64, and the mean of its signed errors is held against its standard
error. Other operations are left out: constants that a norm rounds, and functions that kernels approximate, have errors
that are the same everywhere, and say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import evaluated, is_cast, lift, plainly
from ..programs.noise import Precision
from ..programs.operations import row
from ..programs.program import Program
from ..programs.walk import VALUE, name_of
from .given import Inputs
from .recorded import Read
from .stretches import named

LEAST = 0.1  # half units in the last place, on the mean
CERTAIN = 8.0  # standard errors
_SEVERAL = 3  # results, at least: of numbers that are nearly the same everywhere, so are their roundings
_COUNTED = 100  # numbers, at least, of a mean
_LARGEST = 4.0  # half units that a sum may err by, by its root mean square
_SUMS = ("add", "sub")


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
    """Sums whose errors are on one side, where half of all that can be computed again err to that side; else none.

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
    found = []
    with torch.no_grad(), plainly():
        for node, (module, read) in known.items():
            if name_of(node) not in _SUMS and not is_cast(node):
                continue
            own = _Sum(known, inputs).of(node)
            one = None if own is None else _bias(module, read(), own, precision)
            found += [] if one is None else [replace(one, side=side)]
    for way in {one.way for one in found}:
        certain = tuple(one for one in found if one.way == way and one.is_certain)
        if len(certain) >= max(_SEVERAL, len(found) / 2):
            return certain
    return ()


class _Sum:
    """A sum in float64, from the other's results."""

    def __init__(self, known: Mapping[fx.Node, tuple[str, Read]], inputs: Mapping[fx.Node, Tensor]) -> None:
        self._known, self._inputs = known, inputs

    def of(self, node: fx.Node) -> Tensor | None:
        """The result of a sum or cast, or None where it reads something else."""
        try:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._read)
        except KeyError:
            return None
        found = evaluated(node, args, kwargs)
        return found if isinstance(found, Tensor) else None

    def _read(self, node: fx.Node) -> Any:
        if node in self._inputs:
            return lift(self._inputs[node])
        if node in self._known:
            value = lift(self._known[node][1]())
            if value.shape != node.meta[VALUE].shape:  # of a part of the batch, as where a callable splits it
                raise KeyError(node)
            return value
        found = row(name_of(node)) if node.op == "call_function" else None
        is_exact = found is not None and found.errs is None
        if node.op != "call_function" or not (name_of(node) in _SUMS or is_cast(node) or is_exact):
            raise KeyError(node)
        result = self.of(node)
        if result is None:
            raise KeyError(node)
        return result


def _bias(name: str, value: Tensor, plain: Tensor, precision: Precision) -> Bias | None:
    """The mean error of a result; None where it is of another shape, of few numbers, or no rounding of this one.

    Numbers of a channel or a row may share an error. So the standard error is the largest of those that the means along
    each axis give.
    """
    if value.shape != plain.shape or not value.is_floating_point():
        return None
    wide = lift(value)
    known = (plain != 0) & wide.isfinite() & plain.isfinite()
    if int(known.sum()) < _COUNTED:
        return None
    mantissa, exponent = torch.frexp(torch.where(known, plain, 1.0))
    unit = precision.units(value.dtype)[1]
    up = torch.ldexp(torch.where(known, wide - plain, 0.0), -exponent).mul(2 / unit)
    if float(up[known].square().mean().sqrt()) > _LARGEST:
        return None
    means = [_mean(one, known) for one in (up * mantissa.sign(), up)]
    is_upwards = abs(means[1][0]) > abs(means[0][0])
    return Bias(name, *means[is_upwards], is_upwards)


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
