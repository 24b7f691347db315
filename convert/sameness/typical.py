"""The effect of typical rounding on a network's outputs: runs with noise beside one in float64.

The scale is a root mean square over the runs *and* over a pool (a channel, or a vector of outputs), never over one
element's few runs: with six runs the honest maximum over 10^6 normal numbers is 44 times an element's own deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import Lifted
from ..programs.noise import Noise, Noisy, Precision
from ..programs.program import Program
from ..programs.rounding import Products

RUNS = 6
FEW = 3  # runs after which it may be enough
_LEAST = 32  # numbers of a pool; smaller ones are one


def pooled(x: Tensor) -> Tensor:
    """A tensor as pools, [pools, numbers]: channels of maps, tokens, rows; larger where these are small."""
    if x.ndim == 3 and x.shape[-1] >= _LEAST:
        return x.reshape(-1, x.shape[-1])
    pools = x.transpose(0, 1).flatten(1) if x.ndim >= 4 else x.reshape(len(x) if x.ndim > 1 else 1, -1)
    return pools if pools.shape[1] >= _LEAST else x.reshape(1, -1)


def over_pools(values: Tensor, like: Tensor) -> Tensor:
    """A number for each pool of a tensor, in a shape that spreads over it."""
    if len(values) == 1:
        return values.reshape(())
    if like.ndim == 3 and like.shape[-1] >= _LEAST:
        return values.view(*like.shape[:-1], 1)
    axis = 1 if like.ndim >= 4 else 0
    return values.view([-1 if place == axis else 1 for place in range(like.ndim)])


@dataclass
class Scale:
    """The effect of rounding on a tensor: sums over noisy runs.

    Attributes:
        squares: Sum over runs of the mean square of each pool, [pools].
        largest: The largest of each pool in any run, [pools].
        runs: Their number.
    """

    squares: Tensor
    largest: Tensor
    runs: int = 0
    count: int = 1
    flips: float = 0.0  # share of integers that changed, summed over runs

    @classmethod
    def like(cls, truth: Tensor) -> Scale:
        """An empty one."""
        pools = pooled(truth)
        zeros = torch.zeros(len(pools), dtype=torch.float64, device=truth.device)
        return cls(zeros, zeros.clone(), count=max(pools.shape[1], 1))

    def add(self, found: Tensor, truth: Tensor) -> None:
        """Adds a noisy run."""
        self.runs += 1
        if not truth.is_floating_point():
            self.flips += float((found != truth).double().mean()) if truth.numel() else 0.0
            return
        pools = pooled((found - truth).nan_to_num(0.0, 0.0, 0.0))
        self.squares += pools.square().mean(1)
        self.largest = torch.maximum(self.largest, pools.abs().amax(1))

    @property
    def rms(self) -> Tensor:
        """Root mean square over runs and each pool, [pools].

        Where none of a pool's n numbers moved in any run, as behind a rectifier, fewer than 3 in n do at a level of
        95 %; such a number moves as those of the other pools do.
        """
        squares = self.squares / max(self.runs, 1)
        return torch.where(squares > 0, squares, squares.mean() * 3 / (max(self.runs, 1) * self.count)).sqrt()

    @property
    def top(self) -> Tensor:
        """The largest number that a pool of this many may have, [pools].

        Of n normal numbers it is about m = sqrt(2 ln n), with the standard deviation pi / (sqrt(6) m), of which two are
        allowed for.
        """
        middle = math.sqrt(2 * math.log(max(self.count, 2)))
        rms = torch.where(self.squares > 0, self.rms, (self.squares.mean() / max(self.runs, 1)).sqrt())
        return torch.maximum(self.largest, rms * (middle + 2 * math.pi / math.sqrt(6) / middle))

    def beside(self, other: Scale) -> Scale:
        """The scale of the difference of two numbers that round independently."""
        squares = self.squares / max(self.runs, 1) + other.squares / max(other.runs, 1)
        largest = (self.largest.square() + other.largest.square()).sqrt()
        flips = self.flips / max(self.runs, 1) + other.flips / max(other.runs, 1)
        return Scale(squares, largest, 1, self.count, flips)

    def ratios(self, difference: Tensor) -> tuple[float, float]:
        """The largest ratio of root mean squares, and of largest numbers, over the pools of a difference.

        A root mean square of n numbers has a relative standard deviation of 1 / sqrt(2 n); two are allowed for.
        """
        pools = pooled(difference)
        allowed = self.rms * (1 + 2 / math.sqrt(2 * self.count))
        return _ratio(pools.square().mean(1).sqrt(), allowed), _ratio(pools.abs().amax(1), self.top)


def _ratio(found: Tensor, scale: Tensor) -> float:
    """The largest quotient; 0 / 0 is 0."""
    if not found.numel():
        return 0.0
    return float(torch.where(found == 0, torch.zeros_like(found), found / scale).max())


def distance(one: Tensor, other: Tensor) -> Tensor:
    """The difference; 0 where both are infinite alike, and infinite where one is NaN."""
    return torch.where(one == other, 0.0, one - other).nan_to_num(math.inf)


@dataclass(frozen=True)
class Typical:
    """Truth and typical scale of a network's outputs and of some of its inner values.

    Attributes:
        truth: Its outputs in float64.
        scales: Theirs, by name.
        inner: Truth and scale of the watched operations.
        without_row: Operations whose typical rounding is not known, and is taken for one rounding of the result.
    """

    truth: Mapping[str, Tensor]
    scales: Mapping[str, Scale]
    inner: Mapping[fx.Node, tuple[Tensor, Scale]] = field(default_factory=dict)
    without_row: frozenset[str] = frozenset()


def typical(
    graph: Program,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    precisions: Sequence[Precision],
    *,
    seed: int = 0,
    watched: frozenset[fx.Node] = frozenset(),
    enough: Callable[[Typical], bool] = lambda _: False,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Typical]:
    """Runs a program in float64, and with noise of each precision; equal precisions share their runs.

    Args:
        graph: The program.
        args: Its arguments by place.
        kwargs: Its arguments by name.
        precisions: Those of the sides.
        seed: Of the noise.
        watched: Operations whose results are to have a scale, too.
        enough: Whether what ``FEW`` runs say is enough.
        progress: Called after each run.
    """
    exact = Lifted(graph, watched)
    truth = exact.outputs(args, kwargs)
    progress(1)
    inner = {node: value for node, value in exact.seen.items() if _is_real(value)}
    found: dict[Precision, Typical] = {}
    sums: list[Products | None] = []
    runs = RUNS // len(set(precisions))
    for precision in dict.fromkeys(precisions):
        scales = {name: Scale.like(value) for name, value in truth.items()}
        beside = {node: (value, Scale.like(value)) for node, value in inner.items()}
        for run in range(runs):
            noise = Noise(precision, seed * RUNS + run, sums)
            moved = Noisy(graph, noise, watched)
            for name, value in moved.outputs(args, kwargs).items():
                scales[name].add(value, truth[name])
            for node, (value, scale) in beside.items():
                scale.add(moved.seen[node], value)
            progress(1)
            if run + 1 == FEW < runs and enough(Typical(truth, scales)):
                progress(runs - FEW)
                break
        found[precision] = Typical(truth, scales, beside, frozenset(noise.without_row))
    return [found[precision] for precision in precisions]


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 0
