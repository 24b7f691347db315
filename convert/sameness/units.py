"""Which unit explains the size of a difference.

Engines multiply in TF32, float16 or bfloat16 where a network is in float32, or store such numbers. A difference that is
no rounding of float32 is held against typical rounding of each. But a wrong constant is as large as a coarse unit, too,
so size alone decides nothing: ``nearby.py`` says whether it averages out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import OptionError
from ..programs.noise import TF32, UNITS, Precision
from ..programs.program import Program
from .given import Inputs
from .outputs import THRESHOLD, sampled
from .typical import RUNS

USUAL = 1.2  # honest engines are below it, in their own unit


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

    def rounded(self, value: Tensor) -> Tensor:
        """A weight or constant as the engine has it; integers as they are."""
        if not value.is_floating_point():
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
    usual = [unit for unit, ratio in explaining.items() if ratio <= USUAL]
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
