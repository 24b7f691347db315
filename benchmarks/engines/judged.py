"""What is said of an engine: the unit that explains its difference, whether it averages out, and which way it errs.

``judged`` is the only place that says how. Float32 explains what is at most ``THRESHOLD`` times its typical rounding,
as for ``same``; then weights alone that are stored in half precision. Of the coarser units, the finest is taken whose
typical rounding the difference is ``LEAST`` to ``OWN`` times and that averages out; else the one whose ratio is nearest
to 1. Steps of 8 bits explain nothing by themselves; their ratio is written beside the others.

A constant part is no function yet: an engine may fold norms into weights before it rounds them, so that its weights
are rounded otherwise than A's. Of the two factors of a product, each has half of the typical variance; two independent
roundings of the weights are therefore apart by sqrt(2) sqrt(1/2) = 1 typical rounding. That much is allowed beside
noise of the unit's size; without it, a bug that is as large as a coarser unit would be explained by that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.noise import Precision
from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.given import Inputs
from conv2attn.convert.sameness.nearby import FUNCTION, Averaged, Held, Nearby, averaged
from conv2attn.convert.sameness.units import ALL, Unit, ratios
from conv2attn.convert.sameness.verdict import THRESHOLD

LEAST, OWN = 0.3, 1.2  # times a unit's typical rounding; honest engines stand between them
FLOAT32 = Unit("float32", Precision(), 2.0**-24)
UNITS = (FLOAT32, *ALL)
EIGHT = Unit("8 bits", Precision(levels=127), 0.5 / 127)  # whose steps are none of a number's own size: no averages
WEIGHTS = {"float16 weights": "float16 stored", "bfloat16 weights": "bfloat16 stored"}  # rounded as this unit does
CONSTANT = 1.0  # typical roundings: two roundings of the same weights
BIASED = 0.3  # typical roundings, on the mean; cutting has 0.4 to 1.2, and engines that average out are within 0.12
CERTAIN = 8.0  # standard errors
NAME = ""  # of the only output
Call = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Judged:
    """What is said of an engine.

    Attributes:
        ratio: The largest difference, in units of float32's typical rounding.
        unit: The one that explains it, or the nearest.
        unit_ratio: The largest difference, in units of its typical rounding.
        share: The coherent share.
        expected: That of noise, the median.
        high: That of noise which 0.5 % are above.
        constant: The part that is the same at all inputs, in units of typical rounding.
        bias: The mean difference away from 0, in root mean squares of the unit's typical rounding.
        bias_error: Its standard error over inputs.
        verdict: In words.
        ratios: The largest difference in units of each unit's typical rounding.
        shares: Coherent shares by the units that were tried.
    """

    ratio: float
    unit: str
    unit_ratio: float
    share: float
    expected: float
    high: float
    constant: float
    bias: float
    bias_error: float
    verdict: str
    ratios: Mapping[str, float]
    shares: Mapping[str, float]


@torch.no_grad()
def judged(network: nn.Module, call: Call, inputs: Tensor) -> Judged:
    """Judges an engine's call of a network.

    Args:
        network: What the engine should compute.
        call: The engine's, of the same inputs.
        inputs: Those of the comparison.
    """
    given = Inputs.of(inputs)
    program = Program.of_run(network, (inputs,))
    truth = Lifted(program).outputs((inputs,), {})
    found = {name: call(inputs).float() for name in truth}
    each = {unit.name: ratios(program, given, truth, found, unit.precision) for unit in UNITS}
    by_name = {unit.name: unit for unit in UNITS}
    if each[FLOAT32.name] > THRESHOLD:
        held = {name: _held(program, by_name[unit]) for name, unit in WEIGHTS.items()}
        own = {name: Lifted(one).outputs((inputs,), {}) for name, one in held.items()}
        each |= {name: ratios(one, given, own[name], found, FLOAT32.precision) for name, one in held.items()}
        each[EIGHT.name] = ratios(program, given, truth, found, EIGHT.precision)
    weights = next((name for name in WEIGHTS if each.get(name, math.inf) <= THRESHOLD), None)
    tried = [_tried(program, call, given, unit) for unit in _possible(each)]
    noise = [one for one in tried if one.averaged.is_noise] or [one for one in tried if one.is_noise]
    one = noise[0] if noise else min(tried, key=lambda one: one.constant)
    name = weights or one.unit.name
    verdict = "coarser rounding" if weights else _verdict(one, each[name])
    return Judged(
        each[FLOAT32.name],
        name,
        each[name],
        one.averaged.share,
        one.averaged.expected,
        one.averaged.high,
        one.constant,
        one.bias,
        one.bias_error,
        verdict,
        each,
        {one.unit.name: one.averaged.share for one in tried},
    )


@dataclass(frozen=True)
class _Tried:
    """A unit, and what runs at inputs nearby say of it.

    Attributes:
        unit: The unit.
        averaged: How much of the difference is the same at all inputs.
        constant: That part, in units of typical rounding.
        bias: The mean difference away from 0, in the same units.
        bias_error: Its standard error over inputs.
    """

    unit: Unit
    averaged: Averaged
    constant: float
    bias: float
    bias_error: float

    @property
    def is_noise(self) -> bool:
        """Whether noise of the unit, and other roundings of the weights beside it, give as much."""
        return self.averaged.is_noise or (self.constant <= CONSTANT and self.noise >= LEAST)

    @property
    def noise(self) -> float:
        """The part that averages out, in units of typical rounding."""
        share = self.averaged.share
        return self.constant * math.sqrt(max(1 / share**2 - 1, 0.0)) if share else 0.0

    @property
    def is_biased(self) -> bool:
        """Whether the mean difference is none of noise."""
        return abs(self.bias) > max(BIASED, CERTAIN * self.bias_error)


def _held(program: Program, unit: Unit) -> Program:
    """The network with its weights and constants as the unit rounds them."""
    held = copy.copy(program)
    held.tensors = {name: unit.rounded(one) for name, one in program.tensors.items()}
    return held


def _possible(each: Mapping[str, float]) -> list[Unit]:
    """Units that may explain a difference, or the one whose ratio is nearest to 1."""
    if each[FLOAT32.name] <= THRESHOLD:
        return [FLOAT32]
    near = [unit for unit in UNITS if LEAST <= each[unit.name] <= OWN]
    return near or [min(UNITS, key=lambda unit: abs(math.log(min(max(each[unit.name], 1e-300), 1e300))))]


def _verdict(one: _Tried, ratio: float) -> str:
    if not ratio <= THRESHOLD:
        return "not rounding"
    if one.unit is FLOAT32:
        return "rounding"
    if one.averaged.is_function and not one.is_noise:
        return "not rounding"
    if one.is_biased and one.averaged.share <= FUNCTION:
        return "biased rounding"
    return "coarser rounding" if one.is_noise else "cannot say"


def _tried(program: Program, call: Call, given: Inputs, unit: Unit) -> _Tried:
    """What runs at inputs nearby say of a unit, in root mean squares of its typical rounding."""
    calls: list[tuple[Tensor, Tensor]] = []

    def kept(moved: Nearby) -> Mapping[str, Tensor]:
        calls.append((moved.given.args[0], call(moved.given.args[0]).float()))
        return {NAME: calls[-1][1]}

    shares = averaged(program, kept, given, unit)
    held = Held(program, unit)
    differences, means, squares = [], [], []
    for place, (x, found) in enumerate(calls):
        moved = Nearby(Inputs.of(x))
        truth, noisy = held.outputs(moved)[NAME], held.noisy(moved, place)[NAME]
        differences.append(found.double() - truth)
        means.append(float((differences[-1] * truth.sign()).mean()))
        squares.append(float((noisy - truth).square().mean()))
    typical = math.sqrt(sum(squares) / len(squares)) or math.inf
    constant = float(torch.stack(differences).mean(0).square().mean().sqrt()) / typical
    each = torch.tensor(means, dtype=torch.float64) / typical
    return _Tried(unit, shares, constant, float(each.mean()), float(each.std()) / math.sqrt(len(means)))
