"""Typical rounding: each operation's result is moved by normal noise, as large as its own rounding.

The sizes, and what numbers share, are said by the operation's row (``operations.py``, ``rounding.py``). The runs are in
float64, so that nothing else errs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

from .float64 import Lifted, evaluated, first_of, is_cast, node_dtype
from .operations import row
from .program import Program
from .rounding import Errs, Products, Ran, are_whole

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
TF32 = 2.0**-11
_UNIFORM = 1 / math.sqrt(3)  # root mean square of a number that is uniform within [-1, 1]
_WHOLE = 2.0**24  # whole numbers below it are exact in single precision


@dataclass(frozen=True)
class Precision:
    """The precision that a side computes in.

    Attributes:
        dtype: That of every operation, or None where each has that of the graph.
        factors: Unit at which the factors of products are rounded, both of them; 0 where they are not.
        levels: Steps from 0 to the largest number at which factors of products are rounded, 127 for 8 bits; 0 for none.
    """

    dtype: torch.dtype | None = None
    factors: float = 0.0
    levels: int = 0

    def stored(self, dtype: torch.dtype | None) -> torch.dtype:
        """The type of results, where the graph has this one."""
        chosen = self.dtype or dtype or torch.float32
        return chosen if chosen in UNITS else torch.float32

    def units(self, dtype: torch.dtype | None) -> tuple[float, float]:
        """Unit roundoffs of sums, and of results that are stored, where the graph has this dtype."""
        unit = UNITS[self.stored(dtype)]
        return min(unit, UNITS[torch.float32]), unit


def _steps(ran: Ran, levels: int) -> float:
    """Sum of the squares of what factors lose by steps of their largest number, relative to their root mean squares."""
    if not levels:
        return 0.0
    factors = ran.args[1:3] if ran.name in ("addmm", "baddbmm") else ran.args[:2]
    halves = (float(one.abs().max()) / (2 * levels * max(float(one.square().mean().sqrt()), 1e-300)) for one in factors)
    return sum(half**2 for half in halves)


class Noise(TorchDispatchMode):
    """Moves each operation's result by its typical rounding.

    Args:
        precision: The side's.
        seed: Of the noise.
        sums: Sums of products that an earlier run of the same operations found; it is filled by the first.
    """

    def __init__(self, precision: Precision, seed: int, sums: list[Products | None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._precision, self._seed = precision, seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._sums = [] if sums is None else sums
        self._known, self._place = len(self._sums), 0
        self.dtype: torch.dtype | None = None  # the graph's, of the operation that runs
        self.is_channels_last = False  # whether that reads a map whose channels lie side by side
        self.without_row: set[str] = set()  # operations that are taken to round once

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, moved."""
        out = func(*args, **(kwargs or {}))
        name, first = func._schema.name.split("::")[1], first_of(out)
        found = row(name)
        if not isinstance(first, Tensor) or not first.numel() or (found is not None and found.errs is None):
            return out
        if not (first.is_floating_point() or first.is_complex()):
            return out
        if found is None or found.errs is None:
            self.without_row.add(name)
        ran = Ran(name.removesuffix("_"), func, args, kwargs or {}, out, self.is_channels_last)
        several = [out] if isinstance(out, Tensor) else list(out)
        sizes = self._sizes(ran)
        for place, errs in enumerate(sizes if isinstance(sizes, list) else [sizes]):
            moved = self._moved(ran, several[place], errs)
            if func._schema.is_mutable and place == 0:
                first.copy_(moved)
                moved = first
            several[place] = moved
        return several[0] if isinstance(out, Tensor) else type(out)(several)

    def stored(self, value: Tensor) -> Tensor:
        """A number that is only stored, in the precision of ``dtype``."""
        _, unit = self._precision.units(self.dtype)
        size = value.abs() * (unit * _UNIFORM)
        return value + self._normal(value).mul(size.masked_fill_(self._is_held(value), 0.0))

    def _sizes(self, ran: Ran) -> Errs | Products | list[Errs] | None:
        """Sizes of the errors of a call; sums of products have those of the first run. None where sums are exact."""
        found = row(ran.name)
        if found is None or found.errs is None:
            return Errs(ran.y.abs())
        place = self._place
        if place < self._known and _is_product(ran.name):
            known = self._sums[place]
            if known is None or known.second.shape == ran.y.shape:
                self._place += 1
                return known
        sizes = found.errs(ran)
        if not isinstance(sizes, Products):
            return sizes
        kept = None if self._is_exact(ran, sizes) else sizes
        if not self._known:
            self._sums.append(kept and replace(kept, second=kept.second.float()))
        return kept

    def _is_exact(self, ran: Ran, sizes: Products) -> bool:
        """Whether all terms of sums are whole, and no sum needs more digits than are there."""
        given = [one for one in ran.args if isinstance(one, Tensor)]
        if sizes.is_average or self._precision.factors or self._precision.levels or not are_whole(given):
            return False
        return float(sizes.second.square().max()) * sizes.terms < _WHOLE**2  # by Cauchy and Schwarz

    def _moved(self, ran: Ran, y: Tensor, errs: Errs | Products | None) -> Tensor:
        """A result with its noise."""
        summing, storing = self._precision.units(self.dtype)
        if errs is None:
            return y + self._normal(y).mul(self._stored_errs(y)) if storing > summing else y
        if isinstance(errs, Errs) and errs.is_exact:
            return y
        if isinstance(errs, Products):
            of_factors = 2 * self._precision.factors**2 + _steps(ran, self._precision.levels)
            of_storing = storing**2 if storing > summing else 0.0
            size = errs.squares(y, summing, of_factors, of_storing).sqrt_()
        else:
            size = errs.own * summing
            if errs.is_sum or storing > summing:  # the result is rounded once more
                size = (size.square() + (y.abs() * storing).square()).sqrt()
            if errs.is_once:
                size = size.masked_fill(self._is_held(y) | _is_operand(y, ran.args), 0.0)
        # Infinities, as of a mask in front of a softmax, and what follows of them are exact.
        moved = self._normal(y).mul(size)
        for one in errs.shared if isinstance(errs, Errs) else ():
            normals = one.spread(self._normal(y.new_empty(one.shape)))
            moved = moved + normals * one.factor * summing
        return y + moved.mul_(_UNIFORM).nan_to_num_(0.0, 0.0, 0.0)

    def _stored_errs(self, y: Tensor) -> Tensor:
        _, storing = self._precision.units(self.dtype)
        return (y.abs() * (storing * _UNIFORM)).masked_fill_(self._is_held(y), 0.0)

    def _is_held(self, y: Tensor) -> Tensor:
        """Where numbers are such of the precision, so that nothing is rounded."""
        if y.is_complex():
            return torch.zeros_like(y, dtype=torch.bool)
        return y.to(self._precision.stored(self.dtype)) == y

    def _normal(self, like: Tensor) -> Tensor:
        generator = self._generators.get(like.device)
        if generator is None:
            generator = self._generators[like.device] = torch.Generator(like.device).manual_seed(self._seed)
        single = like.dtype if like.is_complex() else torch.float32  # the size of noise needs no more digits
        return torch.empty_like(like, dtype=single).normal_(generator=generator)


def _is_operand(y: Tensor, args: Any) -> Tensor:
    """Where a result is one of its operands, as of x + 0."""
    found = torch.zeros_like(y, dtype=torch.bool)
    for one in args:
        if isinstance(one, Tensor) and one.is_floating_point() and (one.shape == y.shape or one.numel() == 1):
            found = found | (y == one)
    return found


def _is_product(name: str) -> bool:
    found = row(name)
    return found is not None and found.is_product


class Noisy(Lifted):
    """A run in float64 in which every operation rounds as it usually does."""

    def __init__(self, graph: Program, noise: Noise, watched: frozenset[fx.Node] = frozenset()) -> None:
        super().__init__(graph, watched)
        self._noise = noise

    def result(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result, moved."""
        return noisy(node, args, kwargs, self._noise)


def noisy(node: fx.Node, args: Any, kwargs: Any, noise: Noise) -> Any:
    """The result of an operation in float64, moved by noise."""
    noise.dtype, noise.is_channels_last = node_dtype(node), _is_channels_last(node)
    if is_cast(node):
        found = evaluated(node, args, kwargs)
        return noise.stored(found) if narrows(node) else found
    with noise:
        return evaluated(node, args, kwargs)


def _is_channels_last(node: fx.Node) -> bool:
    value = first_of(node.all_input_nodes[0].meta.get("val")) if node.all_input_nodes else None
    if not isinstance(value, Tensor) or value.ndim not in (4, 5):
        return False
    how = torch.channels_last if value.ndim == 4 else torch.channels_last_3d
    return value.is_contiguous(memory_format=how) and not value.is_contiguous()


def narrows(node: fx.Node) -> bool:
    """Whether a cast rounds: to a floating type with fewer digits than its operand's."""
    before, after = node_dtype(node.all_input_nodes[0]) if node.all_input_nodes else None, node_dtype(node)
    return before is not None and after is not None and UNITS.get(after, 0.0) > UNITS.get(before, 0.0)
