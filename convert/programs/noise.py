"""Typical rounding: each operation's result is moved by normal noise, as large as its own rounding.

The sizes, and what numbers share, are said by the operation's row (``operations.py``, ``rounding.py``). The runs are in
float64, so that nothing else errs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

from .float64 import Lifted, evaluated, first_of, is_cast, node_dtype
from .operations import Operation, row
from .program import Program
from .rounding import WHOLE, Errs, Products, Ran, are_whole

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
TF32 = 2.0**-11
_UNIFORM = 1 / math.sqrt(3)  # root mean square of a number that is uniform within [-1, 1]
_LEAST, _PLACES = 2**16, 2**16  # normal numbers that are drawn, and places that a stretch of them may begin at


@dataclass(frozen=True)
class Precision:
    """The precision that a side computes in.

    Attributes:
        dtype: That of every operation, or None where each has that of the graph.
        factors: Unit at which the factors of products are rounded, both of them; 0 where they are not.
        levels: Steps from 0 to the largest number at which factors of products are rounded, 127 for 8 bits; 0 for none.
        unit: Unit roundoff in place of the type's; 0 for that.
    """

    dtype: torch.dtype | None = None
    factors: float = 0.0
    levels: int = 0
    unit: float = 0.0

    def stored(self, dtype: torch.dtype | None) -> torch.dtype:
        """The type of results, where the graph has this one."""
        chosen = self.dtype or dtype or torch.float32
        return chosen if chosen in UNITS else torch.float32

    def units(self, dtype: torch.dtype | None) -> tuple[float, float]:
        """Unit roundoffs of sums, and of results that are stored, where the graph has this dtype."""
        unit = self.unit or UNITS[self.stored(dtype)]
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
        has_exact: Whether single numbers that are exact have no noise. Where few numbers of a result are not, one run
            says little of the size of what rounds; so scales of one operation by itself are without it.
        has_shared: Whether what several numbers share is one normal number for all. One run may draw it near 0, or two
            that cancel; so for scales of one operation from one run, each number draws its own.
    """

    def __init__(
        self,
        precision: Precision,
        seed: int,
        sums: list[Products | None] | None = None,
        *,
        has_exact: bool = True,
        has_shared: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._precision, self._seed, self._has_exact = precision, seed, has_exact
        self._has_shared = has_shared
        self._places = random.Random(seed)
        self._drawn: dict[torch.device, Tensor] = {}
        self._sums = [] if sums is None else sums
        self._known, self._place = len(self._sums), 0
        self.dtype: torch.dtype | None = None  # the graph's, of the operation that runs
        self.is_channels_last = False  # whether that reads a map whose channels lie side by side
        self.without_row: set[str] = set()  # operations that are taken to round once

    @classmethod
    def of_one_run(cls, precision: Precision, seed: int) -> Noise:
        """Noise for scales of single operations from one run each."""
        return cls(precision, seed, has_exact=False, has_shared=False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, moved."""
        name = func._schema.name.split("::")[1]
        found = row(name)
        is_exact = found is not None and found.errs is None
        read = (args[0].clone(), *args[1:]) if func._schema.is_mutable and not is_exact and args else args
        out = func(*args, **(kwargs or {}))
        first = first_of(out)
        if is_exact or not isinstance(first, Tensor) or not first.numel():
            return out
        if not (first.is_floating_point() or first.is_complex()):
            return out
        if found is None:
            self.without_row.add(name)
        ran = Ran(name.removesuffix("_"), func, read, kwargs or {}, out, self.is_channels_last)
        several = [out] if isinstance(out, Tensor) else list(out)
        sizes = self._sizes(ran, found)
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

    def _sizes(self, ran: Ran, found: Operation | None) -> Errs | Products | list[Errs] | None:
        """Sizes of the errors of a call; sums of products have those of the first run. None where sums are exact."""
        if found is None or found.errs is None:
            return Errs(ran.y.abs())
        place = self._place
        if place < self._known and found.is_product:
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
        return float(sizes.second.square().max()) * sizes.terms < WHOLE**2  # by Cauchy and Schwarz

    def _moved(self, ran: Ran, y: Tensor, errs: Errs | Products | None) -> Tensor:
        """A result with its noise, whose size needs no more digits than single precision has."""
        summing, storing = self._precision.units(self.dtype)
        if isinstance(errs, Errs) and errs.is_exact:
            return y
        again = storing**2 if storing > summing else 0.0  # the result is rounded once more
        if isinstance(errs, Products):
            of_factors = 2 * self._precision.factors**2 + _steps(ran, self._precision.levels)
            size = errs.sizes(y, summing, of_factors, again)
        else:
            size = (torch.zeros_like(y) if errs is None else errs.own * summing).float()
            if errs is not None and errs.is_sum:
                again = storing**2
            if again:
                size = torch.hypot(size, y.abs().float() * math.sqrt(again))
            if self._has_exact and (errs is None or errs.is_once):
                size.masked_fill_(self._is_held(y) | _is_operand(y, ran.args), 0.0)
        moved = size * self._normal(y) if y.is_complex() else size.mul_(self._normal(y))
        for one in errs.shared if isinstance(errs, Errs) else ():
            drawn = one.spread(self._normal(y.new_empty(one.shape))) if self._has_shared else self._normal(y)
            normals = drawn * (one.size * summing).float()
            moved = moved.add_(normals) if one.factor is None else moved.addcmul_(normals, one.factor.float())
        # Infinities, as of a mask in front of a softmax, and what follows of them are exact.
        return y + moved.mul_(_UNIFORM).nan_to_num_(0.0, 0.0, 0.0)

    def _is_held(self, y: Tensor) -> Tensor:
        """Where numbers are such of the precision, so that nothing is rounded.

        In float64 all are; those that are such of float32, too, were hardly rounded: of the others, one in 2^29 is.
        """
        if y.is_complex():
            return torch.zeros_like(y, dtype=torch.bool)
        stored = self._precision.stored(self.dtype)
        return y.to(torch.float32 if stored == torch.float64 else stored) == y

    def _normal(self, like: Tensor) -> Tensor:
        """Normal numbers of a tensor's shape: a stretch of those that were drawn once, from a drawn place on."""
        count = like.numel() * (2 if like.is_complex() else 1)
        drawn = self._drawn.get(like.device)
        if drawn is None or len(drawn) < count + _PLACES:
            generator = torch.Generator(like.device).manual_seed(self._seed)
            size = max(count, _LEAST) + _PLACES
            drawn = torch.empty(size, dtype=torch.float32, device=like.device).normal_(generator=generator)
            self._drawn[like.device] = drawn
        start = 2 * self._places.randrange((len(drawn) - count) // 2)  # complex numbers begin at even places
        found = drawn[start : start + count]
        if like.is_complex():
            return torch.view_as_complex(found.view(*like.shape, 2)) / math.sqrt(2)
        order = sorted(range(like.ndim), key=like.stride, reverse=True)  # as the tensor lies in memory
        laid = found.view([like.shape[axis] for axis in order])
        return laid.permute([order.index(axis) for axis in range(like.ndim)])


def _is_operand(y: Tensor, args: Any) -> Tensor:
    """Where a result is one of its operands, as of x + 0."""
    found = torch.zeros_like(y, dtype=torch.bool)
    for one in args:
        if isinstance(one, Tensor) and one.is_floating_point() and (one.shape == y.shape or one.numel() == 1):
            found = found | (y == one)
    return found


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
    noise.dtype, noise.is_channels_last = node_dtype(node), is_channels_last(node)
    if is_cast(node):
        found = evaluated(node, args, kwargs)
        return noise.stored(found) if narrows(node) else found
    with noise:
        return evaluated(node, args, kwargs)


def is_channels_last(node: fx.Node) -> bool:
    """Whether an operation reads a map whose channels lie side by side in memory."""
    value = first_of(node.all_input_nodes[0].meta.get("val")) if node.all_input_nodes else None
    if not isinstance(value, Tensor) or value.ndim not in (4, 5):
        return False
    how = torch.channels_last if value.ndim == 4 else torch.channels_last_3d
    return value.is_contiguous(memory_format=how) and not value.is_contiguous()


def narrows(node: fx.Node) -> bool:
    """Whether a cast rounds: to a floating type with fewer digits than its operand's."""
    before, after = node_dtype(node.all_input_nodes[0]) if node.all_input_nodes else None, node_dtype(node)
    return before is not None and after is not None and UNITS.get(after, 0.0) > UNITS.get(before, 0.0)
