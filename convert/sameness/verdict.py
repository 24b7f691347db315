"""The verdict of a comparison, with the number, the scale, the operation and what differs there.

same bits     all numbers of the outputs are equal
rounding      no output is further off than ``THRESHOLD`` times what rounding usually does
not rounding  some output is, or some operation, by ``INNER`` times on the same inputs, whose attributes, weights or
              kind are known to differ: a library's own sigmoid may be far less exact than its last digit
quantised     a side computes with integers of 8 bits, which is no rounding; their step is told
cannot say    a side is not deterministic, no side has a graph, or the last bit already changes everything

Both are calibrated: benchmarks/pairs.py chooses them on half of the families of networks, and judges them on the other.
An operation's limit is higher, since a network has hundreds, and some convolutions' algorithms err more than a sum.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from ..certificate.network.images import P, proof_in_words
from ..errors import ConversionError
from ..inputs import scores_of
from .differences import Parted
from .typical import Scale, pooled

_Value = TypeVar("_Value")
THRESHOLD = 3.0
INNER = 20.0
CHAOS = 0.25  # of the outputs' own spread: noise in the last bit that fills them
WIDTH = 80
LEGEND = (
    "Difference: the largest. Rounding: the usual root mean square. Ratio: the larger of two, of root mean squares and "
    "of maxima. A, B: this ratio of each to the float64 reference."
)

Verdict = Literal["same bits", "rounding", "not rounding", "quantised", "cannot say"]
EXIT_CODES: dict[Verdict, int] = {"same bits": 0, "rounding": 0, "not rounding": 1, "quantised": 1, "cannot say": 5}


@dataclass(frozen=True)
class Output:
    """An output of both sides.

    Attributes:
        name: Its name; "" for the only one.
        shape: Its shape.
        difference: The largest difference between A and B.
        typical: What rounding usually does to the difference: a root mean square, the largest over pools.
        ratio: The difference in these units: the larger of the next two.
        rms: Ratio of root mean squares, the largest over pools.
        largest: Ratio of the largest numbers of a pool.
        a: Distance of A from the truth, in units of A's rounding.
        b: The same of B.
    """

    name: str
    shape: tuple[int, ...]
    difference: float
    typical: float
    rms: float
    largest: float
    a: float
    b: float

    @property
    def ratio(self) -> float:
        """The difference in units of what rounding usually does."""
        return max(self.rms, self.largest)


@dataclass(frozen=True)
class Worst:
    """The worst case of the number that differs most.

    Attributes:
        difference: How far A and B are apart there.
        estimate: How far any two orders of the same operations can be apart there in this precision, to first order.
        bound: How far they can be apart there at most, where that was proved: beyond the estimate, for small networks,
            or where it was asked for.
        hypothesis: The class of programs that the bound is of, "any order" or "once" (``certify_images``).
        p: The probability that the bound is wrong, of random numbers; 0 where none were drawn.
    """

    difference: float
    estimate: float
    bound: float | None = None
    hypothesis: str = "any order"
    p: float = 0.0

    @property
    def is_beyond(self) -> bool:
        """Whether no order of these operations explains the difference."""
        return self.difference > self.estimate


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


@dataclass(frozen=True)
class Sameness:
    """Whether the difference between two networks is rounding.

    Attributes:
        verdict: One of the five.
        reason: Why it cannot be said, or what is not rounding where that is no number.
        outputs: Every output.
        where: Where the two part, operation by operation; where all differences are rounding, operations that have
            other attributes or weights all the same.
        inner: The largest difference of an operation on the same inputs, in units of what rounding does there, or None
            where operations were not compared.
        only_outputs: Why nothing but outputs could be compared, or None.
        worst: The worst case, or None where none is known.
        changed: What it does to classes, or None where no output is known as scores.
        steps: The difference in units of what steps of 8 bits do, where a side is quantised.
        truth_error: Bound on how far any number of the truth is from exact arithmetic, where it was proved.
        notes: What else was noticed.
        seed: Of the noise.
        differing: Number of operations that differ, of which ``where`` lists at most eight; 0 where it lists all.
    """

    verdict: Verdict
    reason: str = ""
    outputs: tuple[Output, ...] = ()
    where: tuple[Parted, ...] = ()
    inner: float | None = None
    only_outputs: str | None = None
    worst: Worst | None = None
    changed: Changed | None = None
    steps: float | None = None
    truth_error: float | None = None
    notes: tuple[str, ...] = ()
    seed: int = 0
    differing: int = 0

    @property
    def ratio(self) -> float:
        """The largest difference of an output, in units of what rounding usually does."""
        return max((output.ratio for output in self.outputs), default=0.0)

    @property
    def exit_code(self) -> int:
        """0 for the same bits and rounding, 1 for what is not, 5 where it cannot be said."""
        return EXIT_CODES[self.verdict]

    @property
    def sentence(self) -> str:
        """The verdict, with the number, the scale, the operation and what differs there."""
        if self.verdict == "same bits":
            count = sum(math.prod(one.shape) for one in self.outputs)
            return f"Same bits: all {count:,} elements of the outputs are equal."
        if self.verdict == "cannot say":
            return f"Cannot say: {self.reason}."
        if self.verdict == "rounding":
            said = f"Rounding: the difference is {format_ratio(self.ratio)} times usual rounding."
            return " ".join([said, *([f"But the networks are not the same at {self.where[0]}."] if self.where else [])])
        if self.verdict == "quantised":
            return f"Quantised: {self.reason}."
        if self.is_hidden:
            return f"Not rounding: {self._inside}"
        return " ".join([f"Not rounding: {self.reason or self._size}.", *self._begins])

    @property
    def is_hidden(self) -> bool:
        """Whether rounding covers, in the outputs, what is not rounding at some operation."""
        return self.verdict == "not rounding" and not self.reason and self.ratio <= THRESHOLD

    @property
    def _inside(self) -> str:
        """The operation that differs by more than rounding, and that the outputs do not show it."""
        first, others = self.where[0], _others(max(self.differing, len(self.where)))
        there = f"on the same inputs, {format_ratio(first.ratio)} times usual rounding"
        shown = f"The outputs do not show it: they differ by {format_ratio(self.ratio)} times usual rounding."
        return f"{first} ({there}).{others} {shown}"

    @property
    def _size(self) -> str:
        if math.isfinite(self.ratio):
            return f"the difference is {format_ratio(self.ratio)} times usual rounding"
        apart = max(one.difference for one in self.outputs if one.ratio == math.inf)
        return f"numbers differ by {apart:.2g} where rounding changes nothing"

    @property
    def _begins(self) -> list[str]:
        """Where it begins, or why that is not known."""
        if not self.where:
            return [] if self.only_outputs is None else [f"Only outputs could be compared: {self.only_outputs}."]
        return [f"It begins at {self.where[0]}.{_others(max(self.differing, len(self.where)))}"]

    def table(self) -> list[tuple[str, ...]]:
        """Each output: name, shape, largest difference, usual rounding, ratio, and each side's ratio to the truth."""
        header = ("output", "shape", "difference", "rounding", "ratio", "A", "B")
        return [header, *(_row(output) for output in self.outputs)]

    def lines(self) -> list[str]:
        """All that is said beside the table, a sentence each."""
        found = [self.sentence]
        if self.worst is not None and self.verdict in ("rounding", "not rounding") and not self.is_hidden:
            found.append(_worst(self.worst, self.seed))
        if self.truth_error is not None:
            found.append(
                f"The float64 reference is within {self.truth_error:.2g} of exact arithmetic, which is proved (where "
                f"random numbers were drawn, with seed {self.seed}, but for a probability of {P:.2g} an image)."
            )
        if self.changed is not None:
            found.append(_changed(self.changed))
        for place in self.where[1:]:
            found.append(f"Also {place}.")
        return [*found, *self.notes]

    def __str__(self) -> str:
        """The report, 80 columns wide."""
        sentences = [
            textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False) for line in self.lines()
        ]
        rows = self.table()
        if len(rows) == 1:
            return "\n".join(sentences)
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1))
        lines = ["  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*sentences, "", *lines])

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data; numbers that are not finite are texts."""
        data = asdict(self) | {"ratio": self.ratio, "sentence": self.sentence, "exit_code": self.exit_code}
        data["outputs"] = [asdict(one) | {"ratio": one.ratio} for one in self.outputs]
        found: dict[str, Any] = _plain(data)
        return found


def same_bits(sizes: Mapping[str, tuple[int, ...]]) -> Sameness:
    """The verdict on outputs of these sizes that are equal bit for bit."""
    rows = tuple(Output(name, size, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0) for name, size in sizes.items())
    return Sameness("same bits", outputs=rows)


def inexact_note(one: Parted) -> str:
    """Note on an operation that is the same on both sides and less exact on one."""
    differs = f"on the same inputs it differs by {format_ratio(one.ratio)} times usual rounding"
    return f"{one}; {differs}, which the outputs do not show."


def by_name(a: Mapping[str, Any], other: Mapping[str, _Value]) -> dict[str, _Value]:
    """Values by A's names: those of the same name, or of the same place where names differ."""
    values = [other[name] for name in a] if a.keys() == other.keys() else other.values()
    return dict(zip(a, values, strict=True))


def unpaired(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Sameness | None:
    """The verdict on outputs of different number or shape, or None."""
    if len(a) != len(b):
        counts = [_counted(list(one)) for one in (a, b)]
        return Sameness("not rounding", f"A gives {counts[0]}, B {counts[1]}")
    for name, other in by_name(a, b).items():
        if a[name].shape != other.shape:
            what = f"the output {name}" if name else "the output"
            return Sameness("not rounding", f"{what} is {list(a[name].shape)} in A and {list(other.shape)} in B")
    return None


def _counted(names: list[str]) -> str:
    return "one output" if len(names) == 1 else f"{len(names)} outputs ({', '.join(names)})"


def without_truth(reasons: list[str], a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Sameness:
    """The verdict where no side has a graph: how far the two are apart, without a scale."""
    apart = max(float((one.double() - b[name].double()).nan_to_num(0.0).abs().max()) for name, one in a.items())
    largest = max(float(one.double().nan_to_num(0.0, 0.0, 0.0).abs().max()) for one in a.values())
    distance = f"they are {apart:.2g} apart, beside outputs of up to {largest:.2g}"
    refused = any("has no graph" in reason for reason in reasons)
    remedy = [] if refused else ["give one side as an nn.Module or a program of torch.export"]
    why = f"neither side has a graph that says the truth: {'; '.join([*reasons, distance, *remedy])}"
    return Sameness("cannot say", why)


def format_ratio(value: float) -> str:
    """A ratio: three digits, of large ones fewer."""
    if value < 10:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def _others(count: int) -> str:
    """How many operations differ besides the first."""
    more = count - 1
    return f" {more} more operation{'s differ' if more > 1 else ' differs'}." if more else ""


def _row(output: Output) -> tuple[str, ...]:
    shape = "x".join(map(str, output.shape)) or "scalar"
    numbers = (f"{output.difference:.1e}", f"{output.typical:.1e}")
    return (
        output.name or "output",
        shape,
        *numbers,
        format_ratio(output.ratio),
        format_ratio(output.a),
        format_ratio(output.b),
    )


def _fit(cell: str, width: int) -> str:
    return (cell if len(cell) <= width else f"{cell[: width - 3]}...").ljust(width)


_PROGRAMS = {"any order": "any order of these operations", "once": "rounding each operation once"}


def _worst(worst: Worst, seed: int) -> str:
    how, largest = _PROGRAMS[worst.hypothesis], f"The largest difference, {worst.difference:.2g}, is more than"
    if worst.bound is not None and worst.difference > worst.bound:
        proved = proof_in_words(worst.p, seed)
        return f"{largest} {how} can do in this precision: at most {worst.bound:.2g}, {proved}."
    if worst.is_beyond:
        return f"{largest} {how} can do in this precision, to first order ({worst.estimate:.2g})."
    estimate = f"To first order, rounding could change the element with the largest difference by {worst.estimate:.2g}"
    words = proof_in_words(worst.p, seed)
    proved = "" if worst.bound is None else f"; {how} changes it by at most {worst.bound:.2g}, {words}"
    return f"{estimate}{proved}."


def _changed(changed: Changed) -> str:
    ties = f"{changed.ties} of {changed.answers} are so close that rounding alone may change them"
    margin = f"the smallest margin is {format_ratio(changed.margin)} times usual rounding"
    return f"{changed.changed} of {changed.answers} predictions change; {ties}; {margin}."


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
    return Output(name, shape, top, float(both.rms.max()), rms, largest, beside[0], beside[1])


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


def not_finite(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Sameness | None:
    """The verdict on NaN or infinities at other places of A and B or in both, or None."""
    for name, one in a.items():
        where = f" in the output {name}" if name else ""
        other = b[name]
        nan = [int(each.isnan().sum()) for each in (one, other)]
        if not torch.equal(one.isnan(), other.isnan()):
            return Sameness(
                "not rounding", f"A gives NaN at {nan[0]:,} and B at {nan[1]:,} of {one.numel():,} places{where}"
            )
        if nan[0]:
            return Sameness(
                "cannot say", f"both sides give NaN at the same {nan[0]:,} of {one.numel():,} places{where}"
            )
        if not torch.equal(_infinities(one), _infinities(other)):
            counts = [int(each.isinf().sum()) for each in (one, other)]
            reason = f"A is infinite at {counts[0]:,} and B at {counts[1]:,} of {one.numel():,} places{where}"
            return Sameness("not rounding", reason)
    return None


def _infinities(value: Tensor) -> Tensor:
    return torch.where(value.isinf(), value.sign(), torch.zeros_like(value))
