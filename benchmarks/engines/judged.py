"""What is said of an engine: the unit that explains its difference, whether it averages out, and which way it errs.

``judged`` is the only place that says how: of the units whose typical rounding the difference is at most ``OWN`` times,
the finest that averages out; else the one that it is the fewest times of, where ``same``'s threshold allows that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.noise import Noise, Noisy, Precision
from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.sides import Inputs
from conv2attn.convert.sameness.typical import Scale
from conv2attn.convert.sameness.units import ALL, Averaged, Unit, averaged, ratios
from conv2attn.convert.sameness.verdict import THRESHOLD

OWN = 1.2  # times a unit's typical rounding; honest engines stand at 0.3 to 1.1
FLOAT32 = Unit("float32", Precision(), 2.0**-24)
UNITS = (FLOAT32, *ALL)
BIASED = 0.5  # typical roundings, on the mean; cutting has 1
CERTAIN = 8.0  # standard errors
NAME = ""  # of the only output
Call = Callable[[Tensor], Tensor]
Pair = tuple[Tensor, Tensor]  # an input and the engine's output


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
    tried = [_averaged(program, call, given, unit) for unit in _tried(each)]
    unit, shares, calls = next((one for one in tried if one[1].is_noise), min(tried, key=lambda one: one[1].share))
    bias, error = _bias(program, calls, unit)
    verdict = _verdict(unit, each[unit.name], shares, abs(bias) > max(BIASED, CERTAIN * error))
    shown = (shares.share, shares.expected, shares.high)
    every = {one[0].name: one[1].share for one in tried}
    return Judged(each[FLOAT32.name], unit.name, each[unit.name], *shown, bias, error, verdict, each, every)


def _tried(each: Mapping[str, float]) -> list[Unit]:
    """Units that explain a difference, or the one that is nearest to it; float32 comes first, as for ``same``."""
    if each[FLOAT32.name] <= THRESHOLD:
        return [FLOAT32]
    return [unit for unit in UNITS if each[unit.name] <= OWN] or [min(UNITS, key=lambda unit: each[unit.name])]


def _averaged(program: Program, call: Call, given: Inputs, unit: Unit) -> tuple[Unit, Averaged, list[Pair]]:
    """A unit, what averages say of it, and the calls that these took."""
    calls: list[Pair] = []

    def kept(moved: Inputs) -> Mapping[str, Tensor]:
        x = moved.args[0]
        calls.append((x, call(x).float()))
        return {NAME: calls[-1][1]}

    return unit, averaged(program, kept, given, unit), calls


def _verdict(unit: Unit, ratio: float, shares: Averaged, is_biased: bool) -> str:
    if not ratio <= THRESHOLD:
        return "not rounding"
    if unit is FLOAT32:
        return "biased rounding" if is_biased else "rounding"
    if shares.is_function:
        return "not rounding"
    if is_biased:
        return "biased rounding"
    return "coarser rounding" if shares.is_noise else "cannot say"


def _bias(program: Program, calls: list[Pair], unit: Unit) -> tuple[float, float]:
    """The mean difference away from 0 in root mean squares of typical rounding, and its standard error.

    Weights are rounded as the unit rounds them, since what those roundings do is the same for all inputs.
    """
    held = copy.copy(program)
    held.tensors = {name: unit.held(one) for name, one in program.tensors.items()}
    means = []
    for place, (x, found) in enumerate(calls):
        truth = Lifted(held).outputs((x,), {})[NAME]
        scale = Scale.like(truth)
        scale.add(Noisy(held, Noise(unit.precision, place)).outputs((x,), {})[NAME], truth)
        typical = float(scale.rms.square().mean().sqrt())
        means.append(float(((found.double() - truth) * truth.sign()).mean()) / typical if typical else 0.0)
    each = torch.tensor(means, dtype=torch.float64)
    return float(each.mean()), float(each.std()) / math.sqrt(len(means))
