r"""Which unit explains a difference, and whether it averages out.

Engines multiply in TF32, float16 or bfloat16 where a network is in float32, or store such numbers. A difference that is
no rounding of float32 is held against typical rounding of each. But a wrong constant is as large as a coarse unit, too,
so size alone decides nothing: rounding is noise, which averages out over inputs that differ a little, and a wrong
constant is a function, which stays. With d_i = B(x_i) - A(x_i) at N inputs, the *coherent share* is

    |mean of d_i| / root mean square of |d_i|        1 for a function, 1 / sqrt(N) for noise

A's weights and constants are rounded first as the unit rounds them: those roundings do not change with the input.
Inputs move by at least sixteen steps of the unit, so that roundings of one say nothing of those of the next. What noise
gives is simulated: the same share of runs with noise of that unit, whose signs are drawn again a thousand times.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ..errors import OptionError
from ..programs.float64 import Lifted
from ..programs.noise import TF32, UNITS, Noise, Noisy, Precision
from ..programs.program import Program
from .given import Inputs
from .outputs import THRESHOLD, sampled
from .typical import RUNS

COUNT = 16  # inputs
_STEP = 0.02  # by which they differ, of their deviation, at least
_STEPS = 16  # of the unit, by which they differ at least
_DRAWS = 1000
_USUAL = 1.2  # honest engines are below it, in their own unit
FUNCTION = 0.7  # coherent shares above it are a function's, where noise gives none such
_RANGE = (0.005, 0.995)  # quantiles of what noise gives


@dataclass(frozen=True)
class Unit:
    """A way of rounding that is coarser than a network's own.

    Attributes:
        name: In words.
        precision: What typical rounding is then.
        size: Unit roundoff.
        is_stored: Whether results are rounded, too, not the factors of products alone.
        aliases: Other names.
    """

    name: str
    precision: Precision
    size: float
    is_stored: bool = False
    aliases: tuple[str, ...] = ()

    def held(self, value: Tensor) -> Tensor:
        """A weight or constant as the engine has it."""
        if not value.is_floating_point() or not (self.is_stored or value.ndim > 1):
            return value
        mantissa, exponent = torch.frexp(value.double())
        scale = 1 / (2 * self.size)
        return torch.ldexp((mantissa * 2 * scale).round() / (2 * scale), exponent)


ALL = (
    Unit("TF32 or float16 products", Precision(factors=TF32), TF32, aliases=("TF32 products", "float16 products")),
    Unit("float16 stored", Precision(torch.float16, TF32), TF32, is_stored=True),
    Unit("bfloat16 products", Precision(factors=UNITS[torch.bfloat16]), UNITS[torch.bfloat16]),
    Unit("bfloat16 stored", Precision(torch.bfloat16, UNITS[torch.bfloat16]), UNITS[torch.bfloat16], is_stored=True),
)


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


def ratios(
    program: Program,
    given: Inputs,
    truth: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    precision: Precision,
    *,
    seed: int = 0,
) -> float:
    """The largest difference of outputs from the truth, in units of typical rounding of a precision.

    Args:
        program: The network's.
        given: Its inputs.
        truth: Its outputs in float64, by name.
        outputs: Those of the other side, by the same names.
        precision: The one that is tried.
        seed: Of the noise.
    """
    (scales,) = sampled(program, given, truth, [precision], seed * RUNS)
    found = (
        max(scales[name].ratios((outputs[name].double() - one).nan_to_num(math.inf)))
        for name, one in truth.items()
        if one.is_floating_point()
    )
    return max(found, default=0.0)


def chosen(tried: Mapping[Unit, float]) -> Unit | None:
    """The finest unit whose own rounding is as large as a difference, or the one that comes nearest."""
    explaining = {unit: ratio for unit, ratio in tried.items() if ratio <= THRESHOLD}
    usual = [unit for unit, ratio in explaining.items() if ratio <= _USUAL]
    return usual[0] if usual else min(explaining, key=explaining.__getitem__, default=None)


def named(names: Collection[str]) -> tuple[Unit, ...]:
    """The units of these names; "float16 products" is a name of the first, too.

    Raises:
        OptionError: There is no such unit.
    """
    known = {name: unit for unit in ALL for name in (unit.name, *unit.aliases)}
    for name in names:
        if name not in known:
            raise OptionError(f"unit must be one of {', '.join(known)}; got {name!r}")
    return tuple(known[name] for name in names)


def can_move(given: Inputs) -> bool:
    """Whether inputs can be moved a little: some are real numbers."""
    return any(one.is_floating_point() for one in given.tensors)


def averaged(
    program: Program, call: Callable[[Inputs], Mapping[str, Tensor]], given: Inputs, unit: Unit, *, seed: int = 0
) -> Averaged:
    """How much of the difference of another side from a network is the same at inputs nearby.

    Args:
        program: The network's.
        call: Outputs of the other side, by the network's names.
        given: Inputs, of which those of real numbers are moved.
        unit: The one that the other side rounds in.
        seed: Of the moves and of the noise.
    """
    held = copy.copy(program)
    held.tensors = {name: unit.held(one) for name, one in program.tensors.items()}
    generator = torch.Generator().manual_seed(seed)
    differences, noises = [], []
    for place in range(COUNT):
        moved = _moved(given, max(_STEP, _STEPS * unit.size), generator)
        truth = Lifted(held).outputs(moved.args, moved.kwargs)
        found = call(moved)
        differences.append(_flat({name: found[name].double() - one for name, one in truth.items()}))
        if place % 2:
            continue
        noisy = Noisy(held, Noise(unit.precision, seed * COUNT + place)).outputs(moved.args, moved.kwargs)
        noises.append(_flat({name: noisy[name] - one for name, one in truth.items()}))
    drawn = _signed(torch.stack(noises))
    low, middle, high = torch.quantile(
        drawn, torch.tensor([_RANGE[0], 0.5, _RANGE[1]], dtype=drawn.dtype, device="cpu")
    ).tolist()
    return Averaged(_share(torch.stack(differences)), middle, low, high)


def _moved(given: Inputs, step: float, generator: torch.Generator) -> Inputs:
    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() < 2:
            return value
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64, device="cpu")
        return value + step * value.std() * noise.to(value.device, value.dtype)

    return Inputs(tree_map(moved, given.args), tree_map(moved, given.kwargs))


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
