r"""Whether a difference averages out over inputs nearby: rounding does, another function does not.

With d_i = B(x_i) - A(x_i) at N inputs that differ a little, the *coherent share* is

    |mean of d_i| / root mean square of |d_i|        1 for a function, 1 / sqrt(N) for noise

A's weights are rounded first as the unit rounds them, as these roundings do not change with the input: all tensors
where the unit is that of stored numbers, else the factors of products. Inputs move by at least sixteen steps of the
unit, so that roundings of one say nothing of those of the next. Token ids do not move; what they are embedded as does,
on both sides by the same numbers. Of a side without such embeddings, one token of each text is drawn again
(``drawn.py``); numbers that this does not move are rounded as weights are, since it does not move their roundings. What
noise gives is simulated: the same share of runs with noise of that unit, whose signs are drawn again a thousand times.

A part that is the same everywhere is no function yet. An engine may scale its weights before it rounds them, as where a
norm is folded into them, or round constants that it makes of them: then its weights are other roundings than A's. What
these do is simulated, too. So such a part is a rounding's where it is no larger, if the rest is as large as the unit's
noise; a wrong constant hidden by a coarser unit comes without that rest.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from ..programs.float64 import Lifted
from ..programs.noise import Noise, Noisy
from ..programs.operations import row
from ..programs.program import Program
from ..programs.walk import name_of
from .drawn import drawn
from .given import Inputs
from .units import Unit

COUNT = 16  # inputs
_STEP = 0.02  # by which they differ, of their deviation, at least
_STEPS = 16  # of the unit, by which they differ at least
_DRAWS = 1000
FUNCTION = 0.7  # coherent shares above it are a function's, where noise gives none such
LEAST = 0.3  # of a unit's typical rounding; honest engines round by 0.3 to 1.1 of it
_OTHERS = 16  # simulations of weights that are rounded otherwise
_BEYOND = tuple(t * math.sqrt(1 + 1 / _OTHERS) for t in (1.753, 2.602))  # Student's, 15 degrees: once in 20, in 100
_RANGE = (0.005, 0.995)  # quantiles of what noise gives
_SMALL = 2.0**-20  # of a weight, so that effects are proportional
_SECOND = ("addmm", "baddbmm")  # whose factors are the second and third operand


@dataclass(frozen=True)
class Nearby:
    """A call nearby.

    Attributes:
        given: Its inputs.
        shifts: What is added to the results of embeddings, by the name of their module.
    """

    given: Inputs
    shifts: Mapping[str, Tensor] = field(default_factory=dict)


Call = Callable[[Nearby], Mapping[str, Tensor]]
"""The outputs of the other side, by the network's names."""
Rounding = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Averaged:
    """How much of a difference is the same at all inputs.

    Attributes:
        share: The coherent share.
        expected: That of noise, the median.
        low: Of noise, 0.5 % are below it.
        high: Of noise, 0.5 % are above it.
        unit: The unit that was tried.
        ratio: The largest difference, in units of its typical rounding.
        constant: The part that is the same at all inputs, in units of typical rounding.
        rest: The root mean square of the rest, in the same units.
        weights_95: What other roundings of the weights give for ``constant`` at most, but once in 20; 0 if not asked.
        weights_99: The same, but once in 100.
        steady: The coherent share of a function; less than 1 where other tokens change its effect.
    """

    share: float
    expected: float
    low: float
    high: float
    unit: str = ""
    ratio: float = math.nan
    constant: float = 0.0
    rest: float = 0.0
    weights_95: float = 0.0
    weights_99: float = 0.0
    steady: float = 1.0

    @property
    def is_noise(self) -> bool:
        """Whether noise gives such shares, with other roundings of the weights or without."""
        return self.is_distinct and (self.share <= self.high or self.is_of_weights)

    @property
    def is_of_weights(self) -> bool:
        """Whether other roundings of the weights give such a part that is the same, and noise of the unit the rest."""
        return self.constant <= self.weights_95 and self._own_rest >= LEAST

    @property
    def is_function(self) -> bool:
        """Whether noise gives none such, nor other roundings of the weights, and most of it is the same everywhere."""
        can_be_weights = self.constant <= self.weights_99 and self._own_rest >= LEAST
        return self.is_distinct and self.share > max(self.high, FUNCTION * self.steady) and not can_be_weights

    @property
    def is_distinct(self) -> bool:
        """Whether the share of a function is above that of noise."""
        return FUNCTION * self.steady > self.high

    @property
    def _own_rest(self) -> float:
        """The rest without that part of a function's effect that other tokens change."""
        changing = self.constant**2 * (1 / self.steady**2 - 1)
        return math.sqrt(max(self.rest**2 - changing, 0.0))


def can_move(given: Inputs) -> bool:
    """Whether inputs can be moved a little: some are real numbers."""
    return any(one.is_floating_point() for one in given.tensors)


def embeddings(program: Program) -> dict[str, fx.Node] | None:
    """The embeddings of what is given, by the name of their module; None where one is in no module."""
    depends, modules = program.dependent(), {node: name for name, node in program.given.items()}
    found = [node for node in program.nodes if name_of(node) == "embedding" and node in depends]
    named = {modules[node]: node for node in found if node in modules}
    return named if len(named) == len(found) else None


class Steady:
    """Numbers that do not move from one call to the next: their roundings do not, either.

    Args:
        unit: The unit.
    """

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._first: dict[tuple[fx.Node, int], Tensor] = {}
        self._masks: dict[tuple[fx.Node, int], Tensor] = {}

    def next(self) -> None:
        """Begins another call."""
        self._masks.clear()

    def rounded(self, node: fx.Node, place: int, value: Any) -> Any:
        """An operand or result, with those numbers rounded that are within a step of what the first call gave."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        key = (node, place)
        first = self._first.setdefault(key, value)
        if key not in self._masks:
            self._masks[key] = (value - first).abs() <= 2 * self._unit.size * first.abs()
        return torch.where(self._masks[key], self._unit.rounded(value), value)


class Held:
    """A network with the weights of an engine that rounds in a unit.

    Args:
        program: The network's.
        unit: The unit.
        base: Inputs, of which other calls move few numbers: what these leave is rounded, too. None where all move.
    """

    def __init__(self, program: Program, unit: Unit, base: Inputs | None = None) -> None:
        self._program, self._unit = program, unit
        self._own = self._with_tensors(unit.rounded)
        self._embedded = embeddings(program) or {}
        self._steady = None if base is None else Steady(unit)
        if base is not None:
            self.outputs(Nearby(base))

    def _with_tensors(self, rounding: Rounding) -> Program:
        """The program, with its tensors rounded where the unit is that of stored numbers."""
        if not self._unit.is_stored:
            return self._program
        held = copy.copy(self._program)
        held.tensors = {name: rounding(one) for name, one in self._program.tensors.items()}
        return held

    def outputs(self, call: Nearby) -> dict[str, Tensor]:
        """Its outputs in float64, by name."""
        if self._steady is not None:
            self._steady.next()
        return self._run(_Exact(self._own), call, self._unit.rounded)

    def noisy(self, call: Nearby, seed: int) -> dict[str, Tensor]:
        """The same, with typical rounding of the unit."""
        return self._run(_Moved(self._own, Noise(self._unit.precision, seed)), call, self._unit.rounded)

    def otherwise(self, call: Nearby, seed: int) -> dict[str, Tensor]:
        """The outputs in float64 with weights that are rounded otherwise: scaled before, and back after."""
        generator = torch.Generator().manual_seed(seed)

        def rounding(value: Tensor) -> Tensor:
            if not value.is_floating_point():
                return value
            drawn = torch.rand(value.shape, generator=generator, dtype=torch.float64, device="cpu")
            scale = torch.exp2(drawn.to(value.device))
            return self._unit.rounded(value.double() * scale) / scale

        return self._run(_Exact(self._with_tensors(rounding)), call, rounding)

    def perturbed(self, call: Nearby) -> dict[str, Tensor]:
        """The effect of another function in float64: each weight is off by a small part of itself, always the same."""
        generator = torch.Generator().manual_seed(0)

        def moved(value: Tensor) -> Tensor:
            if not value.is_floating_point():
                return value
            normal = torch.randn(value.shape, generator=generator, dtype=torch.float64, device="cpu")
            return value.double() * (1 + _SMALL * normal.to(value.device))

        other = copy.copy(self._program)
        other.tensors = {name: moved(one) for name, one in self._program.tensors.items()}
        args, kwargs = call.given.args, call.given.kwargs
        own, found = (Lifted(one).outputs(args, kwargs) for one in (self._program, other))
        return {name: one - own[name] for name, one in found.items()}

    def embedded(self, given: Inputs) -> dict[str, Tensor]:
        """The results of its embeddings, by the name of their module."""
        run = Lifted(self._own, frozenset(self._embedded.values()))
        run.outputs(given.args, given.kwargs)
        return {name: run.seen[node] for name, node in self._embedded.items()}

    def _run(self, run: _Exact | _Moved, call: Nearby, rounding: Rounding) -> dict[str, Tensor]:
        shifts = {self._embedded[name]: one for name, one in call.shifts.items()}
        weights = None if self._unit.is_stored else rounding
        run.how = _How(weights, self._program.dependent(), shifts, self._steady)
        return run.outputs(call.given.args, call.given.kwargs)


@dataclass(frozen=True)
class _How:
    """What is otherwise in a run.

    Attributes:
        weights: Rounds the factors of products that are no results of inputs; None where results are rounded.
        dependent: Operations whose results depend on the inputs.
        shifts: What is added to the results of operations.
        steady: Rounds numbers that do not move, or None.
    """

    weights: Rounding | None
    dependent: set[fx.Node]
    shifts: Mapping[fx.Node, Tensor]
    steady: Steady | None


class _Exact(Lifted):
    """A run in float64 whose weights are rounded where products read them, and whose embeddings are moved."""

    how: _How

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation."""
        found = super().operation(node, self._with_factors(node, args), kwargs)
        if self.how.steady is not None and self.how.weights is None and node in self.how.dependent:
            found = self.how.steady.rounded(node, -1, found)
        return found + self.how.shifts[node].to(found) if node in self.how.shifts else found

    def _with_factors(self, node: fx.Node, args: Any) -> Any:
        """Arguments with rounded weights: factors of products that depend on no input, matrices of what has no row."""
        weights, steady, known = self.how.weights, self.how.steady, row(name_of(node))
        if weights is None or (known is not None and not known.is_product):
            return args
        held = {id(self.env[one]) for one in node.all_input_nodes if one not in self.how.dependent}
        places = range(len(args)) if known is None else (1, 2) if name_of(node) in _SECOND else (0, 1)

        def rounded(place: int, value: Any) -> Any:
            if isinstance(value, Tensor) and id(value) in held:
                return weights(value) if known is not None or value.ndim > 1 else value
            return value if steady is None or known is None else steady.rounded(node, place, value)

        return tuple(
            tree_map(partial(rounded, place), one) if place in places else one for place, one in enumerate(args)
        )


class _Moved(_Exact, Noisy):
    """The same, with noise."""


def averaged(
    program: Program, call: Call, given: Inputs, unit: Unit, *, seed: int = 0, draws: bool = False
) -> Averaged:
    """How much of the difference of another side from a network is the same at inputs nearby.

    Args:
        program: The network's.
        call: The other side's.
        given: Inputs, of which those of real numbers are moved; else what they are embedded as.
        unit: The one that the other side rounds in.
        seed: Of the moves and of the noise.
        draws: Whether a token of each text is drawn again, instead.
    """
    held = Held(program, unit, given if draws else None)
    calls = (
        [Nearby(one) for one in drawn(program, given, COUNT, seed)]
        if draws
        else list(_nearby(held, given, max(_STEP, _STEPS * unit.size), seed))
    )
    truths, differences, noises = list[Tensor](), list[Tensor](), list[Tensor]()
    for place, moved in enumerate(calls):
        truth, found = held.outputs(moved), call(moved)
        truths.append(_flat(truth))
        differences.append(_flat({name: found[name].double() - one for name, one in truth.items()}))
        if place % 2 == 0:
            noises.append(_flat(held.noisy(moved, seed * COUNT + place)) - truths[-1])
    is_moved = (torch.stack(truths) != truths[0]).any(0)  # else a token has no effect there, as in causal models
    rows, noise = torch.stack(differences)[:, is_moved], torch.stack(noises)[:, is_moved]
    signed = _signed(noise)
    quantiles = torch.tensor([_RANGE[0], 0.5, _RANGE[1]], dtype=signed.dtype, device="cpu")
    low, middle, high = torch.quantile(signed, quantiles).tolist()
    typical, mean = float(noise.square().sum(1).mean().sqrt()) or math.inf, rows.mean(0)
    rest = float((rows - mean).square().sum(1).sum().div(len(rows) - 1).sqrt())
    sizes = {"constant": float(mean.norm()) / typical, "rest": rest / typical}
    result = Averaged(_share(rows), middle, low, high, unit.name, **sizes)
    if result.share <= high:
        return result
    steady = _share(torch.stack([_flat(held.perturbed(one)) for one in calls])[:, is_moved]) if draws else 1.0
    often, most = (one / typical for one in _of_other_weights(held, Nearby(given), is_moved, seed))
    return replace(result, weights_95=often, weights_99=most, steady=steady)


def _of_other_weights(held: Held, call: Nearby, is_moved: Tensor, seed: int) -> list[float]:
    """How far other roundings of the weights move the outputs, by the norm: at most, but once in 20 and once in 100."""
    truth = _flat(held.outputs(call))
    found = [_flat(held.otherwise(call, seed * _OTHERS + place)) - truth for place in range(_OTHERS)]
    norms = torch.stack([one[is_moved].norm() for one in found])
    return [float(norms.mean() + deviations * norms.std()) for deviations in _BEYOND]


def _nearby(held: Held, given: Inputs, step: float, seed: int) -> Iterator[Nearby]:
    """Calls nearby, each moved by another draw."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(value: Tensor) -> Tensor:
        normal = torch.randn(value.shape, generator=generator, dtype=torch.float64, device="cpu")
        return step * value.std() * normal.to(value.device, value.dtype)

    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() < 2:
            return value
        return value + drawn(value)

    embedded = {} if can_move(given) else {name: one.float() for name, one in held.embedded(given).items()}
    for _ in range(COUNT):
        if embedded:
            yield Nearby(given, {name: drawn(one) for name, one in embedded.items()})
        else:
            yield Nearby(Inputs(tree_map(moved, given.args), tree_map(moved, given.kwargs)))


def _flat(values: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([one.cpu().double().flatten().nan_to_num(0.0, 0.0, 0.0) for one in values.values() if one.numel()])


def _share(rows: Tensor) -> float:
    """The coherent share of rows."""
    size = float(rows.square().sum(1).mean().sqrt())
    return float(rows.mean(0).norm()) / size if size > 0 else 0.0


def _signed(rows: Tensor) -> Tensor:
    """Coherent shares of as many rows as there are inputs, drawn from these, and their signs."""
    products, generator = rows @ rows.T, torch.Generator().manual_seed(1)
    chosen = torch.randint(0, len(rows), (_DRAWS, COUNT), generator=generator, device="cpu")
    signs = torch.randint(0, 2, (_DRAWS, COUNT), generator=generator, device="cpu").double() * 2 - 1
    weights = torch.zeros(_DRAWS, len(rows), dtype=torch.float64, device="cpu").scatter_add_(1, chosen, signs)
    sums = ((weights @ products) * weights).sum(1).clamp(min=0).sqrt() / COUNT
    return sums / products.diagonal()[chosen].mean(1).clamp(min=1e-300).sqrt()
