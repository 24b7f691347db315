r"""Ranges of every unit of a network, tested at once by Cauchy deviates.

``linearised.py`` bounds what programs of a class differ by, if R_u <= D_u at every unit u, where R_u is the 1-norm of a
row that a backward pass would give. Cauchy numbers are 1-stable: with independent standard ones times e in place of
what operations add, one forward pass gives every unit a number that is Cauchy with the scale R_u. Were R_u > D_u, it
would be within x D_u with probability at most (2 / pi) atan(x). So with k passes, of which m are to be within x D_u
at every unit, wrong ranges pass with probability at most

    P(Binomial(k, q) >= m),      q = (2 / pi) atan(x + kappa + kappa') + (4 / pi) sqrt(N g / kappa')

whatever the number of units: one wrong unit must pass its own test (claims ``cauchy-scale`` and ``level-of-the-test``).
kappa is the passes' own rounding, which each column checks. The last summand is for numbers drawn on a grid: arguments
of tan err by g, which moves a column of N numbers by more than kappa' R with at most that probability.

D is fixed before the numbers are drawn: from a pilot in single precision, which no proof rests on, and then from
rounds that failed, each with numbers of its own and its share of p. Small networks take R itself: nothing is random.

The claims are in ``proofs/claims/certificate/ranges.py``. Kreinovich and Ferson (2004) use Cauchy deviates to estimate;
a test with a known error makes a proof of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
import torch
from torch import Tensor, fx

from ...errors import ConversionError
from .linearised import KAPPA, Linearised, Step, columns_of
from .pointwise import kinks_of
from .program import Program

# D / R that a pilot aims at, the widest first, and that which a test is made for: the less, the more columns it takes
MARGINS = ((64.0, 16.0), (12.0, 6.0), (5.0, 3.5), (4.0, 3.0), (3.0, 2.5), (2.2, 2.0), (1.7, 1.6), (1.3, 1.3))
_TRIED = ((0, 0), (1, 2), (3, 7))  # places of margins; where one closes, those before it from the first are tried
WIDEST = 1.5  # times the first-order estimate: a wider bound means that ranges open
ROUNDS = 8
_REHEARSALS = 3  # in single precision, each for a third of a round's time
# A drawn seed has 128 bits. Of as many independent streams, the share that passes wrong ranges deviates from p by about
# sqrt(p 2^-128), which is at most 2^-14 of p from here on.
SMALLEST_P = 2.0**-100
_GRID, _GRID_SHARE = 2.0**-50, 2.0**-7  # g and kappa'
_SMALL = 2048  # units of a network whose R are taken as they are
_PILOT = 32  # columns
_LOOSE = 2.2  # D / R of units that are far from a kink, at least
_COLUMNS = 2**24  # numbers of a tensor of columns
_MANY, _PASSING = 1024, 0.1  # units of an operation, and their share that pass a kink where ranges have opened


class OpenedError(Exception):
    """Ranges that open; the text names the place."""


@dataclass(frozen=True)
class Opens:
    """Why there is no bound.

    Attributes:
        layer: Where ranges open, or what has no bound.
        reason: In words.
    """

    layer: str
    reason: str


@dataclass(frozen=True)
class Proof:
    """Ranges that hold.

    Attributes:
        ranges: The network with them.
        radius: Bound on how far an output of any program is from the center, [outputs].
        columns: Columns of the test that was passed; 0 where nothing is random.
        rounds: Tests that were made.
    """

    ranges: Linearised
    radius: Tensor
    columns: int = 0
    rounds: int = 0


class Draws:
    """Cauchy numbers of one seed, each drawn once.

    Args:
        seed: Of the generator, of which NumPy's ``SeedSequence`` takes every bit.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.SFC64(seed))  # in less than half the time of torch's own
        self._room: dict[torch.dtype, Tensor] = {}

    def added(self, columns: Tensor, scale: Tensor) -> Tensor:
        """Columns with independent Cauchy numbers of these scales added, [count, *shape], in the columns' precision."""
        count, scale = len(columns), scale.to(columns.dtype)
        if int((scale > 0).sum()) * 4 > scale.numel():
            return torch.addcmul(columns, self._drawn(columns, count, *scale.shape), scale)
        places, found = scale.flatten().nonzero().flatten(), columns.reshape(len(columns), -1).clone()
        found[:, places] += self._drawn(columns, count, len(places)) * scale.flatten()[places]
        return found.view(columns.shape)

    def _drawn(self, like: Tensor, *shape: int) -> Tensor:
        """Standard numbers, in memory that the next ones are drawn into, too."""
        room, count = self._room.get(like.dtype), math.prod(shape)
        if room is None or room.numel() < count:
            room = self._room[like.dtype] = torch.empty(count, dtype=like.dtype, device="cpu")
        uniform = room[:count]
        self._generator.random(out=uniform.numpy(), dtype=uniform.numpy().dtype)
        return uniform.mul_(math.pi).tan_().view(shape)


def share_within(margin: float, numbers: int, *, dtype: torch.dtype = torch.float64) -> Fraction:
    """q: most probability of a number within margin^(-1/2) D where R > D, rounded up.

    Args:
        margin: D / R that is aimed at.
        numbers: Numbers drawn for a column.
        dtype: Their precision, whose grid they are on.
    """
    inside = 2 / math.pi * math.atan(margin**-0.5 + KAPPA + _GRID_SHARE)
    return Fraction(math.ceil((inside + _on_grid(numbers, dtype)) * 2**16 + 2**-10), 2**16)


def _on_grid(numbers: int, dtype: torch.dtype = torch.float64) -> float:
    """Most probability that numbers from a grid move a column by more than kappa' R."""
    grid = _GRID * torch.finfo(dtype).eps / torch.finfo(torch.float64).eps
    return 4 / math.pi * math.sqrt(numbers * grid / _GRID_SHARE)


def binomial_tail(columns: int, share: Fraction, votes: int) -> Fraction:
    """P(Binomial(columns, share) >= votes), exactly."""
    inside, whole = share.numerator, share.denominator
    outside = whole - inside
    ways = (math.comb(columns, n) * inside**n * outside ** (columns - n) for n in range(votes, columns + 1))
    return Fraction(sum(ways), whole**columns)


def plan(margin: float, numbers: int, p: float) -> tuple[int, int]:
    """Columns, and votes that every unit needs of them, for a test that is wrong with probability p at most.

    Raises:
        OpenedError: No number of columns would do.
    """
    share = share_within(margin, numbers)
    if share >= Fraction(1, 2):
        raise OpenedError("the test's random numbers are too coarse for this many")
    middle = 0.5 + 0.1 * (0.5 - float(share))
    divergence = middle * math.log(middle / float(share)) + (1 - middle) * math.log((1 - middle) / (1 - float(share)))
    columns = 8 * math.ceil(-math.log(p) / divergence / 8)  # Chernoff's bound, so enough
    return columns, _fewest_votes(columns, share, p)


def _fewest_votes(columns: int, share: Fraction, p: float) -> int:
    """The fewest votes whose ``binomial_tail`` is at most p, by adding up its terms from the last."""
    inside, outside = share.numerator, share.denominator - share.numerator
    votes, term, total, allowed = columns, inside**columns, 0, Fraction(p) * share.denominator**columns
    while total + term <= allowed:
        total += term
        term = term * votes * outside // ((columns - votes + 1) * inside)
        votes -= 1
    return votes + 1


def prove(
    program: Program, image: Tensor, hypothesis: str, first: Linearised, top: Tensor, *, p: float, draws: Draws
) -> Proof | Opens:
    """Ranges in which every program of a class stays, with probability 1 - p of our own random numbers, or why not.

    Args:
        program: The network's.
        image: [1, channels, *size].
        hypothesis: The class.
        first: The network to first order.
        top: Factors of the outputs whose bound says whether ranges are narrow enough, [1, outputs].
        p: Probability that ranges are wrong and yet pass.
        draws: Where random numbers come from.
    """
    prover = _Prover(program, image, draws, top, float(first.reach(top)[0]))
    if units_of(first) <= _SMALL:
        ranges = Linearised(program, image, hypothesis, radius="rows")
        return _trouble(ranges) or Proof(ranges, ranges.values()[1])
    found = prover.narrowest_needed(hypothesis)
    if isinstance(found, tuple):
        return prover.tested(hypothesis, *found, p)
    layer, _, why = found.partition("\n")
    return Opens(layer, why or "ranges open there")


def units_of(first: Linearised) -> int:
    """Numbers whose ranges would be tested."""
    return sum(math.prod(step.shape) for step in first.steps if step.is_tested)


def _trouble(ranges: Linearised) -> Opens | None:
    """The first operation that has no bound."""
    if not ranges.problems:
        return None
    return Opens(ranges.problems[0].name, ranges.problems[0].reason)


@dataclass(frozen=True)
class _Prover:
    """One network and image.

    Attributes:
        program: The network's.
        image: [1, channels, *size].
        draws: Where random numbers come from.
        top: Factors of the outputs whose bound says whether ranges are narrow enough, [1, outputs].
        estimate: Of these, to first order.
    """

    program: Program
    image: Tensor
    draws: Draws
    top: Tensor
    estimate: float

    def narrowest_needed(self, hypothesis: str) -> tuple[Linearised, float] | str:
        """A pilot's ranges of the widest margin that closes, and that which to test; or where the narrowest open."""
        opened = ""
        for first, place in _TRIED:
            found = self.pilot(hypothesis, MARGINS[place][0])
            if isinstance(found, str):
                opened = found
                continue
            for wide, margin in MARGINS[first:place]:
                wider = self.pilot(hypothesis, wide)
                if isinstance(wider, Linearised):
                    return wider, margin
            return found, MARGINS[place][1]
        return opened

    def pilot(self, hypothesis: str, margin: float) -> Linearised | str:
        """The network with ranges of a pilot, or where they open, and why if that is not their width."""

        def radius(index: int, node: fx.Node, center: Tensor, columns: Tensor | None) -> Tensor:
            typical = _typical(columns) if columns is not None else torch.zeros_like(center)
            found = _radius(typical, node, center, margin)
            if _is_open(found, node, center):
                raise OpenedError(self.program.layer(node))
            return found

        try:
            ranges = Linearised(
                self.program,
                self.image,
                hypothesis,
                radius=radius,
                columns=torch.zeros(_PILOT, *self.image.shape, dtype=torch.float32, device="cpu"),
                draw=self.draws.added,
            )
        except OpenedError as opened:
            return str(opened)
        failed = _trouble(ranges)
        if failed is not None:
            return f"{failed.layer}\n{failed.reason}"
        bound = float(ranges.reach(self.top)[0])
        return ranges if bound <= WIDEST * self.estimate else _widest(ranges)

    def tested(self, hypothesis: str, ranges: Linearised, margin: float, p: float) -> Proof | Opens:
        """Widens ranges by rehearsals in single precision, then tests them, in rounds.

        Ranges that a round passes by luck are widened, too, for the next one.
        """
        most = 4 * _drawn(ranges)  # numbers of a column; a few more units may pass kinks in wider ranges
        try:
            columns, needed = plan(margin, most, p / 2 / ROUNDS)
        except OpenedError as reason:
            return Opens("the network", str(reason))
        rehearsals, failing = _REHEARSALS if margin < MARGINS[1][1] else 0, dict[int, Tensor]()
        for turn in range(rehearsals + ROUNDS):
            is_rehearsal = turn < rehearsals
            count = max(64, columns // 2) if is_rehearsal else columns
            dtype = torch.float32 if is_rehearsal else torch.float64
            votes, outputs = votes_of(ranges, count, margin, self.draws, dtype=dtype, is_rehearsal=is_rehearsal)
            failing = {index: one < needed for index, one in votes.items()}
            if not is_rehearsal and not any(bool(one.any()) for one in failing.values()) and _drawn(ranges) <= most:
                reach = reach_of_outputs(outputs, most, p / 2 / ROUNDS)
                return Proof(ranges, torch.minimum(ranges.values()[1], reach), columns, turn - rehearsals + 1)
            noise = 1.5 * math.sqrt(count) / 2 + 3 * count / math.sqrt(columns) / 2  # of these votes, and of the next
            likely = count * needed / columns + noise
            short = {index: one < likely for index, one in votes.items()}
            if any(bool(one.any()) for one in short.values()):
                given = {
                    index: _wider(ranges.steps[index], votes[index], short[index], count, margin) for index in votes
                }
                ranges = Linearised(self.program, self.image, hypothesis, radius=functools.partial(_given, given))
                failed = _trouble(ranges)
                if failed is not None:
                    return failed
        place = max(failing, key=lambda index: int(failing[index].sum()))
        total = sum(int(one.sum()) for one in failing.values())
        return Opens(ranges.steps[place].place, f"{total:,} ranges failed in the last of {ROUNDS} rounds")


def _given(ranges: Mapping[int, Tensor], index: int, *_: object) -> Tensor:
    return ranges[index]


def _is_open(radius: Tensor, node: fx.Node, center: Tensor) -> bool:
    """Whether ranges are as wide as the values of an operation, or many of them pass a kink."""
    size, mean = float(center.std(correction=0) + center.abs().mean()), float(radius.mean())
    is_wide = center.numel() >= 64 and mean > max(size / 8, 1e-200)  # a norm's scale may be 0
    far = [(center - kink).abs() for kink in kinks_of(node)]
    passing = sum(float(((one < radius) & (one > 0)).double().mean()) for one in far)  # a dead unit may lie on it
    return is_wide or (center.numel() >= _MANY and passing > _PASSING)


def _widest(ranges: Linearised) -> str:
    """The operation whose maps leave most, relative to what it rounds."""

    def left(step: Step) -> float:
        rest = None if step.local is None else step.local.rest
        return 0.0 if rest is None else float(rest.sum())

    return max(ranges.steps, key=left).place


def _typical(columns: Tensor) -> Tensor:
    """Scales of units, from the medians of a pilot's columns: between each unit's own and its channel's and pixel's.

    The logarithm of a median of k Cauchy numbers has the variance (pi / 2)^2 / k; what medians vary by beside that is
    the units' own.
    """
    median = columns.abs().median(0).values.double()
    if median.ndim != 4 or median.shape[-1] < 2:
        return median
    some = median > 1e-290
    count = some.sum((2, 3), keepdim=True).clamp(min=1)
    log = median.clamp(min=1e-290).log() * some
    channel = log.sum((2, 3), keepdim=True) / count
    rest = (log - channel) * some
    pixel = rest.sum(1, keepdim=True) / some.sum(1, keepdim=True).clamp(min=1)
    rest = (rest - pixel) * some
    noise = (math.pi / 2) ** 2 / len(columns)
    spread = max(0.0, float(rest.square().sum() / some.sum().clamp(min=1)) - noise)
    return torch.where(some, (channel + pixel + spread / (spread + noise) * rest).exp(), median)


def _radius(typical: Tensor, node: fx.Node, center: Tensor, margin: float) -> Tensor:
    """D from the pilot's scales: wider where no kink is near, which costs nothing."""
    mean = float(typical.mean()) + 1e-300
    shape = (*typical.shape[:2], *[1] * (typical.ndim - 2))
    alone, least = typical <= 1e-290, typical.clamp(min=0.02 * mean)
    if typical.ndim > 2:
        least = torch.maximum(least, 0.05 * typical.flatten(2).mean(2).view(shape))
    least = torch.where(alone, least.clamp(min=0.3 * mean), least)
    if margin >= _LOOSE:
        return margin * least
    far = torch.full_like(center, math.inf)
    for kink in kinks_of(node):
        far = torch.minimum(far, (center - kink).abs())
    return torch.maximum(margin * least, torch.minimum(far * (1 - 2.0**-30), _LOOSE * least))


def _drawn(ranges: Linearised) -> int:
    """Numbers that are drawn for a column."""
    return sum(int((step.added > 0).sum()) for step in ranges.steps if step.added is not None)


def votes_of(
    ranges: Linearised,
    count: int,
    margin: float,
    draws: Draws,
    *,
    dtype: torch.dtype = torch.float64,
    is_rehearsal: bool = False,
) -> tuple[dict[int, Tensor], Tensor]:
    """Votes of so many columns: how many are within margin^(-1/2) D at each unit, and the outputs' columns.

    Columns that round too much vote no, and are infinite; those of a rehearsal may.
    """
    within = {
        index: (margin**-0.5 * (1 - 2.0**-20) * step.tested).to(dtype)
        for index, step in enumerate(ranges.steps)
        if step.tested is not None
    }
    votes = {index: torch.zeros(one.shape, dtype=torch.int16, device="cpu") for index, one in within.items()}
    at_once = max(1, min(16, _COLUMNS // max(math.prod(step.shape) for step in ranges.steps)))
    ends, outputs = [one.step for one in ranges.outputs], []
    for number in torch.ones(count, device="cpu").split(at_once):
        found: dict[int, Tensor] = {}
        last: dict[int, Tensor] = {}

        def seen(index: int, columns: Tensor, found: dict[int, Tensor] = found, last: dict[int, Tensor] = last) -> None:
            if index in within:
                found[index] = columns <= within[index]
            if index in ends:
                last[index] = columns.reshape(len(columns), -1).clone()

        with torch.no_grad():
            made = len(number)
            is_fine = columns_of(ranges.steps, made, draws.added, dtype, seen, is_rehearsal=is_rehearsal)
        for index, one in found.items():
            votes[index] += (one if bool(is_fine.all()) else one[is_fine]).sum(0, dtype=torch.int16)
        whole = torch.cat([last[index] for index in ends], 1)
        outputs.append(whole.masked_fill(~is_fine[:, None], math.inf))
    return votes, torch.cat(outputs)


def reach_of_outputs(columns: Tensor, numbers: int, p: float) -> Tensor:
    """Bounds on R of all outputs, [outputs], together wrong with probability p at most.

    Were R larger than t / x, with t the median of |columns|, half of the columns would be within x R.
    """
    count, outputs = columns.shape
    votes = (count + 1) // 2
    low, high = 0, 2**15  # of the share, times 2^-16
    while high - low > 1:
        middle = (low + high) // 2
        is_rare = binomial_tail(count, Fraction(middle, 2**16), votes) <= Fraction(p) / outputs
        low, high = (middle, high) if is_rare else (low, middle)
    inside = math.tan(math.pi / 2 * (low / 2**16 - 2.0**-20 - _on_grid(numbers))) - KAPPA - _GRID_SHARE
    if not inside > 0:
        return torch.full((outputs,), math.inf, dtype=torch.float64, device="cpu")
    return columns.sort(0).values[votes - 1] * ((1 + 2.0**-20) / inside)


def _wider(step: Step, votes: Tensor, failing: Tensor, count: int, margin: float) -> Tensor:
    """D for another test, of fresh numbers: of x D / R the share of votes is (2 / pi) atan."""
    tested = cast(Tensor, step.tested)
    share = (votes.double() / count).clamp(min=0.02, max=0.98)
    scale = margin**-0.5 * tested / (share * (math.pi / 2)).tan()
    return torch.where(failing, torch.maximum(tested, 1.5 * margin * scale), tested)


def checked_probability(p: float) -> float:
    """p, refused if it is no probability that a test can have.

    Raises:
        ConversionError: It is not between 2^-100 and 1/2.
    """
    if not isinstance(p, int | float) or not SMALLEST_P <= p <= 0.5:
        raise ConversionError(f"p must be a probability between 2^-100 and 0.5; got {p!r:.80}")
    return float(p)
