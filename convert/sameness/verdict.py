"""The verdict of a comparison, with the number, the scale, the operation and what differs there.

same bits     all numbers of the outputs are equal
rounding      no output is further off than ``THRESHOLD`` times typical rounding
not rounding  some output is, or some operation, by ``INNER`` times on the same inputs, whose attributes, weights or
              kind are known to differ: a library's own sigmoid may be far less exact than its last digit
biased        all differences are rounding in size, and modules' results err to one side, as cut digits do
coarser       the difference is rounding of a coarser unit than the declared one: it is as large, and averages out
quantised     a side computes with integers of 8 bits, which is no rounding; their step is told
cannot say    a side is not deterministic, no side has a graph, or the last bit already changes everything

Both are calibrated: benchmarks/pairs.py chooses them on half of the families of networks, and judges them on the other.
An operation's limit is higher, since a network has hundreds, and some convolutions' algorithms err more than a sum.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..certificate.network.images import P, proof_in_words
from .bias import Bias
from .differences import Parted
from .nearby import Averaged
from .outputs import THRESHOLD as THRESHOLD
from .outputs import Changed, Output, by_name
from .tokens import Tokens

INNER = 20.0
WIDTH = 80
LESS = "compare outputs before rounding has grown so large: of fewer layers or steps, or of both in higher precision"
_LISTED = 8  # operations in a report
LEGEND = (
    "Difference: the largest. Typical: the largest of one as typical rounding makes it. Ratio: their quotient, by root "
    "mean squares or by maxima, whichever is larger. A, B: this ratio of each to the float64 reference."
)

Verdict = Literal[
    "same bits", "rounding", "biased rounding", "coarser rounding", "quantised", "not rounding", "cannot say"
]
EXIT_CODES: dict[Verdict, int] = {
    "same bits": 0,
    "rounding": 0,
    "biased rounding": 1,
    "coarser rounding": 1,
    "quantised": 1,
    "not rounding": 1,
    "cannot say": 5,
}


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
class Sameness:
    """Whether the difference between two networks is rounding.

    Attributes:
        verdict: One of the seven.
        reason: Why it cannot be said, or what is not rounding where that is no number.
        outputs: Every output.
        where: Where the two part, operation by operation; where all differences are rounding, operations that have
            other attributes or weights all the same.
        inner: The largest difference of an operation on the same inputs, in units of what rounding does there, or None
            where operations were not compared.
        only_outputs: Why nothing but outputs could be compared, or None.
        worst: The worst case, or None where none is known.
        changed: What it does to classes, or None where no output is known as scores.
        tokens: What it does to the tokens of a language model, in place of ``changed``; None of other networks.
        steps: The difference in units of what steps of 8 bits do, where a side is quantised.
        truth_error: Bound on how far any number of the truth is from exact arithmetic, where it was proved.
        notes: What else was noticed.
        seed: Of the noise.
        remedy: What would make it judgeable, where it cannot be said.
        unseen: Operations that did nothing on these inputs, so that a fault in them would not show.
        turned: Choices, as of a token's expert, that differ between the sides or that rounding turns.
        unit: The coarser unit whose rounding it is, such as "bfloat16 products"; "" for other verdicts.
        averaged: How much of the difference is the same at inputs nearby, where a coarser unit was tried.
        bias: Modules whose results err to one side.
        allowed: Units whose rounding is allowed.
    """

    verdict: Verdict
    reason: str = ""
    outputs: tuple[Output, ...] = ()
    where: tuple[Parted, ...] = ()
    inner: float | None = None
    only_outputs: str | None = None
    worst: Worst | None = None
    changed: Changed | None = None
    tokens: Tokens | None = None
    steps: float | None = None
    truth_error: float | None = None
    notes: tuple[str, ...] = ()
    seed: int = 0
    remedy: str = ""
    unseen: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()
    unit: str = ""
    averaged: Averaged | None = None
    bias: tuple[Bias, ...] = ()
    allowed: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """The largest difference of an output, in units of typical rounding."""
        return max((output.ratio for output in self.outputs), default=0.0)

    @property
    def exit_code(self) -> int:
        """0 for the same bits, rounding, and rounding of an allowed unit; 1 for the rest, 5 where it cannot be said."""
        return 0 if self.unit and self.unit in self.allowed else EXIT_CODES[self.verdict]

    @property
    def sentence(self) -> str:
        """The verdict, with the number, the scale, the operation and what differs there."""
        if self.verdict == "same bits":
            count = sum(math.prod(one.shape) for one in self.outputs)
            return f"Same bits: all {count:,} elements of the outputs are equal."
        if self.verdict == "cannot say":
            return f"Cannot say: {self.reason}."
        if self.verdict == "rounding":
            said = f"Rounding: the difference is {format_ratio(self.ratio)} times typical rounding."
            return " ".join([said, *([f"But the networks are not the same at {self.where[0]}."] if self.where else [])])
        if self.verdict == "quantised":
            return f"Quantised: {self.reason}."
        if self.verdict == "coarser rounding":
            return " ".join([f"Coarser rounding: {self.reason}.", *self._begins])
        if self.verdict == "biased rounding":
            return self._one_sided
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
        first, others = self.where[0], _others(self.where)
        there = f"on the same inputs, {format_ratio(first.ratio)} times typical rounding"
        shown = f"The outputs do not show it: they differ by {format_ratio(self.ratio)} times typical rounding."
        return f"{first} ({there}).{others} {shown}"

    @property
    def _one_sided(self) -> str:
        """Where results err to one side, and by how much."""
        first, more = max(self.bias, key=lambda one: abs(one.mean)), len(self.bias) - 1
        others = f" So do {more} more modules." if more > 1 else " So does one more module." if more else ""
        amount = f"{abs(first.mean):.2g} (+- {first.error:.1g}) half units in the last place"
        size = f"The outputs differ by {format_ratio(self.ratio)} times typical rounding."
        where = f"`{first.name}` of {first.side}"
        return f"Biased rounding: {where} errs by {amount} {first.way}, on the mean.{others} {size}"

    @property
    def _size(self) -> str:
        if math.isfinite(self.ratio):
            return f"the difference is {format_ratio(self.ratio)} times typical rounding"
        apart = max(one.difference for one in self.outputs if one.ratio == math.inf)
        return f"numbers differ by {apart:.2g} where rounding changes nothing"

    @property
    def _begins(self) -> list[str]:
        """Where it begins, or why that is not known."""
        if not self.where:
            if self.only_outputs is None:
                return []
            compared = "Only outputs could be compared" if self.inner is None else "Operations were compared, too"
            return [f"{compared}: {self.only_outputs}."]
        first, others = self.where[0], _others(self.where)
        if first.may_be_behind:
            return [f"It begins at `{first.name}` ({first.kind}) or behind it: {first.why}.{others}"]
        return [f"It begins at {first}.{others}"]

    @property
    def advice(self) -> str:
        """What to do next, in a sentence; "" where there is nothing."""
        if self.verdict == "cannot say":
            return f"To judge it, {self.remedy}." if self.remedy else ""
        if self.verdict == "coarser rounding" and self.unit not in self.allowed:
            return f"If that is meant, allow it with unit={self.unit!r}; else let the engine compute as it declares."
        if self.verdict == "biased rounding":
            return "Rounding to nearest has no mean error: look whether digits are cut, or a constant differs a little."
        if self.verdict == "not rounding" and self.where:
            behind = " and what follows it" if self.where[0].may_be_behind else ""
            return f"Look at `{self.where[0].name}`{behind} in both networks."
        if self.verdict == "not rounding" and self.only_outputs is not None and self.inner is None:
            return "Operations are compared where both sides are networks, or functions that torch can record."
        tolerance = max((one.tolerance for one in self.outputs), default=0.0)
        if self.verdict == "rounding" and tolerance:
            return f"A test of this passes with rtol=0, atol={rounded_up(tolerance)}."
        return ""

    def table(self) -> list[tuple[str, ...]]:
        """Each output: name, shape, largest difference, typical rounding, ratio, and each side's ratio to the truth."""
        header = ("output", "shape", "difference", "typical", "ratio", "A", "B")
        return [header, *(_row(output) for output in self.outputs)]

    def lines(self) -> list[str]:
        """All that is said beside the table, a sentence each."""
        found = [self.sentence, *([self.advice] if self.advice else [])]
        if self.worst is not None and self.verdict in ("rounding", "not rounding") and not self.is_hidden:
            found.append(_worst(self.worst, self.seed, self.outputs))
        if self.truth_error is not None:
            found.append(
                f"The float64 reference is within {self.truth_error:.2g} of exact arithmetic, which is proved (where "
                f"random numbers were drawn, with seed {self.seed}, but for a probability of {P:.2g} an image)."
            )
        if self.changed is not None:
            found.append(_changed(self.changed))
        if self.tokens is not None:
            found += self.tokens.lines()
        for place in self.where[1:_LISTED]:
            found.append(f"Also {place}.")
        if len(self.where) > _LISTED:
            found.append(f"And {len(self.where) - _LISTED} more.")
        return [*found, *self.turned, *self._unseen, *self.notes]

    @property
    def _unseen(self) -> list[str]:
        if not self.unseen:
            return []
        named, more = ", ".join(self.unseen[:_LISTED]), len(self.unseen) - _LISTED
        others = f" and {more} more" if more > 0 else ""
        return [f"A fault in these could not be seen, as they do nothing on these inputs: {named}{others}."]

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
    differs = f"on the same inputs it differs by {format_ratio(one.ratio)} times typical rounding"
    return f"{one}; {differs}, which the outputs do not show."


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
    without = "give a version of one side without what torch cannot record"
    remedy = without if refused else "give one side as an nn.Module or a program of torch.export"
    why = f"neither side has a graph that says the truth: {'; '.join([*reasons, distance])}"
    return Sameness("cannot say", why, remedy=remedy)


def format_ratio(value: float) -> str:
    """A ratio: three digits, of large ones fewer."""
    if value < 10:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def rounded_up(value: float) -> str:
    """A number with two digits that is no smaller."""
    digits = 1 - math.floor(math.log10(value))
    return f"{math.ceil(value * 10**digits * (1 - 1e-12)) / 10**digits:.2g}"


def _others(where: Sequence[Parted]) -> str:
    """How many operations differ besides the first."""
    more = len(where) - 1
    return f" {more} more operation{'s differ' if more > 1 else ' differs'}." if more else ""


def _row(output: Output) -> tuple[str, ...]:
    shape = "x".join(map(str, output.shape)) or "scalar"
    numbers = (f"{output.difference:.1e}", f"{output.scale:.1e}")
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


def _worst(worst: Worst, seed: int, outputs: Sequence[Output]) -> str:
    """Typical rounding and the worst case of the number that differs most, in one sentence."""
    row = next((one for one in outputs if one.difference == worst.difference), None)
    how, largest = _PROGRAMS[worst.hypothesis], f"The largest difference is {worst.difference:.2g}"
    words, is_beyond_bound = proof_in_words(worst.p, seed), worst.bound is not None and worst.difference > worst.bound
    if is_beyond_bound or worst.is_beyond:
        typically = "" if row is None else f"typically {row.scale:.2g}, and "
        most = f"at most {worst.bound:.2g}, {words}" if is_beyond_bound else f"to first order {worst.estimate:.2g}"
        return f"{largest}, more than {how} can do in this precision: {typically}{most}."
    typically = "" if row is None else f"typically changes that element by {row.scale:.2g} and, "
    first = f"to first order, by at most {worst.estimate:.2g} (if all errors had the same sign)"
    proved = "" if worst.bound is None else f"; {how} changes it by at most {worst.bound:.2g}, {words}"
    return f"{largest}; rounding {typically or 'changes that element, '}{first}{proved}."


def _changed(changed: Changed) -> str:
    ties = f"{changed.ties} of {changed.answers} are so close that rounding alone may change them"
    margin = f"the smallest margin is {format_ratio(changed.margin)} times typical rounding"
    return f"{changed.changed} of {changed.answers} predictions change; {ties}; {margin}."


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
                "cannot say",
                f"both sides give NaN at the same {nan[0]:,} of {one.numel():,} places{where}",
                remedy="give inputs on which the outputs are numbers",
            )
        if not torch.equal(_infinities(one), _infinities(other)):
            counts = [int(each.isinf().sum()) for each in (one, other)]
            reason = f"A is infinite at {counts[0]:,} and B at {counts[1]:,} of {one.numel():,} places{where}"
            return Sameness("not rounding", reason)
    return None


def _infinities(value: Tensor) -> Tensor:
    return torch.where(value.isinf(), value.sign(), torch.zeros_like(value))
