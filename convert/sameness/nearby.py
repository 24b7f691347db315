r"""Whether a difference averages out over inputs nearby: rounding does, another function does not.

With d_i = B(x_i) - A(x_i) at N inputs that differ a little, the *coherent share* is

    |mean of d_i| / root mean square of |d_i|        1 for a function, 1 / sqrt(N) for noise

A's weights are rounded first as the unit rounds them, as these roundings do not change with the input: all tensors
where the unit is that of stored numbers, else the factors of products. Inputs move by at least sixteen steps of the
unit, so that roundings of one say nothing of those of the next. Token ids do not move; what they are embedded as does,
on both sides by the same numbers. What noise gives is simulated: the same share of runs with noise of that unit, whose
signs are drawn again a thousand times.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from ..programs.float64 import Lifted
from ..programs.noise import Noise, Noisy
from ..programs.operations import row
from ..programs.program import Program
from ..programs.walk import name_of
from .given import Inputs
from .units import Unit

COUNT = 16  # inputs
_STEP = 0.02  # by which they differ, of their deviation, at least
_STEPS = 16  # of the unit, by which they differ at least
_DRAWS = 1000
FUNCTION = 0.7  # coherent shares above it are a function's, where noise gives none such
_RANGE = (0.005, 0.995)  # quantiles of what noise gives
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


@dataclass(frozen=True)
class Averaged:
    """How much of a difference is the same at all inputs.

    Attributes:
        share: The coherent share.
        expected: That of noise, the median.
        low: Of noise, 0.5 % are below it.
        high: Of noise, 0.5 % are above it.
    """

    share: float
    expected: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether noise gives such shares."""
        return self.share <= self.high

    @property
    def is_function(self) -> bool:
        """Whether noise gives none such, and most of it is the same everywhere."""
        return not self.is_noise and self.share > FUNCTION


def can_move(given: Inputs) -> bool:
    """Whether inputs can be moved a little: some are real numbers."""
    return any(one.is_floating_point() for one in given.tensors)


def embeddings(program: Program) -> dict[str, fx.Node] | None:
    """The embeddings of what is given, by the name of their module; None where one is in no module."""
    depends, modules = program.dependent(), {node: name for name, node in program.given.items()}
    found = [node for node in program.nodes if name_of(node) == "embedding" and node in depends]
    named = {modules[node]: node for node in found if node in modules}
    return named if len(named) == len(found) else None


class Held:
    """A network with the weights of an engine that rounds in a unit.

    Args:
        program: The network's.
        unit: The unit.
    """

    def __init__(self, program: Program, unit: Unit) -> None:
        self._program, self._unit = program, unit
        self._embedded = embeddings(program) or {}
        if unit.is_stored:
            self._program = copy.copy(program)
            self._program.tensors = {name: unit.rounded(one) for name, one in program.tensors.items()}

    def outputs(self, call: Nearby) -> dict[str, Tensor]:
        """Its outputs in float64, by name."""
        return self._run(_Exact(self._program), call)

    def noisy(self, call: Nearby, seed: int) -> dict[str, Tensor]:
        """The same, with typical rounding of the unit."""
        return self._run(_Moved(self._program, Noise(self._unit.precision, seed)), call)

    def embedded(self, given: Inputs) -> dict[str, Tensor]:
        """The results of its embeddings, by the name of their module."""
        run = Lifted(self._program, frozenset(self._embedded.values()))
        run.outputs(given.args, given.kwargs)
        return {name: run.seen[node] for name, node in self._embedded.items()}

    def _run(self, run: _Exact | _Moved, call: Nearby) -> dict[str, Tensor]:
        shifts = {self._embedded[name]: one for name, one in call.shifts.items()}
        run.how = _How(None if self._unit.is_stored else self._unit, self._program.dependent(), shifts)
        return run.outputs(call.given.args, call.given.kwargs)


@dataclass(frozen=True)
class _How:
    """What is otherwise in a run.

    Attributes:
        unit: The unit in which factors of products are rounded that are no results of inputs, or None.
        dependent: Operations whose results depend on the inputs.
        shifts: What is added to the results of operations.
    """

    unit: Unit | None
    dependent: set[fx.Node]
    shifts: Mapping[fx.Node, Tensor]


class _Exact(Lifted):
    """A run in float64 whose weights are rounded where products read them, and whose embeddings are moved."""

    how: _How

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation."""
        found = super().operation(node, self._with_weights(node, args), kwargs)
        return found + self.how.shifts[node].to(found) if node in self.how.shifts else found

    def _with_weights(self, node: fx.Node, args: Any) -> Any:
        """Arguments with rounded weights: factors of products that depend on no input, matrices of what has no row."""
        unit, known = self.how.unit, row(name_of(node))
        if unit is None or (known is not None and not known.is_product):
            return args
        held = {id(self.env[one]) for one in node.all_input_nodes if one not in self.how.dependent}
        places = range(len(args)) if known is None else (1, 2) if name_of(node) in _SECOND else (0, 1)

        def rounded(value: Any) -> Any:
            is_weight = isinstance(value, Tensor) and id(value) in held and (known is not None or value.ndim > 1)
            return unit.rounded(value) if is_weight else value

        return tuple(tree_map(rounded, one) if place in places else one for place, one in enumerate(args))


class _Moved(_Exact, Noisy):
    """The same, with noise."""


def averaged(program: Program, call: Call, given: Inputs, unit: Unit, *, seed: int = 0) -> Averaged:
    """How much of the difference of another side from a network is the same at inputs nearby.

    Args:
        program: The network's.
        call: The other side's.
        given: Inputs, of which those of real numbers are moved; else what they are embedded as.
        unit: The one that the other side rounds in.
        seed: Of the moves and of the noise.
    """
    held = Held(program, unit)
    differences, noises = [], []
    for place, moved in enumerate(_nearby(held, given, max(_STEP, _STEPS * unit.size), seed)):
        truth, found = held.outputs(moved), call(moved)
        differences.append(_flat({name: found[name].double() - one for name, one in truth.items()}))
        if place % 2:
            continue
        noisy = held.noisy(moved, seed * COUNT + place)
        noises.append(_flat({name: noisy[name] - one for name, one in truth.items()}))
    drawn = _signed(torch.stack(noises))
    low, middle, high = torch.quantile(
        drawn, torch.tensor([_RANGE[0], 0.5, _RANGE[1]], dtype=drawn.dtype, device="cpu")
    ).tolist()
    return Averaged(_share(torch.stack(differences)), middle, low, high)


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
