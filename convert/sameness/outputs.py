"""The outputs of both sides beside the truth: their difference in units of rounding, and what it does to answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import ConversionError
from ..inputs import scores_of
from ..programs.noise import Noise, Noisy, Precision
from ..programs.program import Program
from .given import Inputs
from .typical import Scale, pooled

_Value = TypeVar("_Value")
THRESHOLD = 3.0
CHAOS = 0.25  # of the outputs' own spread: noise in the last bit that fills them


@dataclass(frozen=True)
class Output:
    """An output of both sides.

    Attributes:
        name: Its name; "" for the only one.
        shape: Its shape.
        difference: The largest difference between A and B.
        typical: What rounding typically does to the difference: a root mean square, the largest over pools.
        ratio: The difference in these units: the larger of the next two.
        rms: Ratio of root mean squares, the largest over pools.
        largest: Ratio of the largest numbers of a pool.
        a: Distance of A from the truth, in units of A's rounding.
        b: The same of B.
        tolerance: An absolute difference that rounding does not exceed.
    """

    name: str
    shape: tuple[int, ...]
    difference: float
    typical: float
    rms: float
    largest: float
    a: float
    b: float
    tolerance: float = 0.0

    @property
    def ratio(self) -> float:
        """The difference in units of typical rounding."""
        return max(self.rms, self.largest)

    @property
    def scale(self) -> float:
        """The largest number of a difference of this form that is as large as typical rounding makes it."""
        return self.difference / self.ratio if self.ratio else self.typical


@dataclass(frozen=True)
class Changed:
    """The effect of the difference on answers.

    Attributes:
        answers: Number of answers: images, or pixels.
        changed: Those whose largest score is another one.
        ties: Those whose margin is within the threshold, so that any rounding may turn them.
        margin: The smallest margin over the second largest score, in units of rounding.
    """

    answers: int
    changed: int
    ties: int
    margin: float


def by_name(a: Mapping[str, Any], other: Mapping[str, _Value]) -> dict[str, _Value]:
    """Values by A's names: those of the same name, or of the same place where names differ."""
    values = [other[name] for name in a] if a.keys() == other.keys() else other.values()
    return dict(zip(a, values, strict=True))


def sampled(
    program: Program, given: Inputs, truth: Mapping[str, Tensor], precisions: Sequence[Precision], seed: int
) -> list[dict[str, Scale]]:
    """A program's noise in each of these precisions, of one run, by the names of its truth."""
    found = []
    for precision in precisions:
        moved = by_name(truth, Noisy(program, Noise(precision, seed)).outputs(given.args, given.kwargs))
        scales = {name: Scale.like(one) for name, one in truth.items()}
        for name, one in moved.items():
            scales[name].add(one, truth[name])
        found.append(scales)
    return found


def output_of(name: str, sides: tuple[Tensor, Tensor], truth: Tensor, scales: tuple[Scale, Scale]) -> Output:
    """An output of A and B beside the truth, infinities at the same places left out."""
    shape = tuple(truth.shape)
    if not truth.is_floating_point():
        return _of_integers(name, sides, truth, scales)
    a, b = (side.double() for side in sides)
    difference, both = _minus(a, b), scales[0].beside(scales[1])
    rms, largest = both.ratios(difference)
    beside = [max(scale.ratios(_minus(side, truth))) for scale, side in zip(scales, (a, b), strict=True)]
    top = float(difference.abs().max()) if difference.numel() else 0.0
    typical, tolerance = float(both.rms.max()), THRESHOLD * float(both.top.max())
    return Output(name, shape, top, typical, rms, largest, beside[0], beside[1], tolerance)


def outputs_of(
    sides: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    truth: Mapping[str, Tensor],
    scales: tuple[Mapping[str, Scale], Mapping[str, Scale]],
) -> tuple[Output, ...]:
    """Every output of A and B beside the truth; all by A's names."""
    a, b = sides
    return tuple(output_of(name, (a[name], b[name]), truth[name], (scales[0][name], scales[1][name])) for name in a)


def chaotic(truth: Mapping[str, Tensor], scales: Sequence[Mapping[str, Scale]]) -> str | None:
    """The reason why outputs cannot be judged whose last bit already fills their range, or None."""
    name = next((name for name, one in truth.items() if any(is_chaotic(one, each[name]) for each in scales)), None)
    what = f"the output {name}" if name else "the outputs"
    return None if name is None else f"rounding in the last bit already changes {what} completely"


def _minus(one: Tensor, other: Tensor) -> Tensor:
    return torch.where(one.isinf() & (one == other), torch.zeros_like(one), one - other)


def _of_integers(name: str, sides: tuple[Tensor, Tensor], truth: Tensor, scales: tuple[Scale, Scale]) -> Output:
    """An output of integers: the share that differs, beside the share that noise turns."""
    both = scales[0].beside(scales[1])

    def ratio(one: Tensor, other: Tensor, flips: float) -> float:
        share = float((one != other).double().mean()) if one.numel() else 0.0
        return share / flips if flips else math.inf if share else 0.0

    apart = float((sides[0].double() - sides[1].double()).abs().max()) if truth.numel() else 0.0
    ratios = [ratio(side, truth, scale.flips) for side, scale in zip(sides, scales, strict=True)]
    own = ratio(*sides, both.flips)
    return Output(name, tuple(truth.shape), apart, 0.0, own, own, *ratios)


def is_chaotic(truth: Tensor, scale: Scale) -> bool:
    """Whether noise in the last bit already fills the range of an output: a root mean square beside its deviation."""
    if not truth.is_floating_point():
        return scale.flips / max(scale.runs, 1) > CHAOS
    pools = pooled(truth.nan_to_num(0.0, 0.0, 0.0))
    noise, own = float(scale.rms.square().mean().sqrt()), float((pools - pools.mean()).square().mean().sqrt())
    return noise > 0 and noise > CHAOS * max(own, float(pools.abs().max()) * 1e-3)


def changed_answers(
    a: Mapping[str, Tensor], b: Mapping[str, Tensor], truth: Mapping[str, Tensor], unit: float
) -> Changed | None:
    """Classes that change and margins, where one output is known as scores; ``unit`` is the scale of the difference."""
    try:
        scores, others, exact = scores_of(a), scores_of(b), scores_of(truth)
    except ConversionError:
        return None
    is_scores = scores.ndim > 1 and scores.shape[1] > 1 and scores.is_floating_point() and scores.shape == exact.shape
    if not is_scores or scores.shape != others.shape:
        return None
    turned = int((scores.argmax(1) != others.argmax(1)).sum())
    first, second = exact.topk(2, dim=1).values.unbind(1)
    margins = (first - second) / unit if unit else (first - second) * math.inf
    margins = margins.nan_to_num(0.0, math.inf)
    return Changed(first.numel(), turned, int((margins <= THRESHOLD).sum()), float(margins.min()))
