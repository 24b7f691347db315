"""What the measured numbers must hold, and whether they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ...convert.size import format_bytes
from .results import Kind, Phase, Row, summarise
from .tables import CONTENT, NETWORK, POSITIONS

MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"
GIB = 2**30
PREDICTED = 0.95  # of pairs; the rest are two engines as fast as each other

EXACT, SOFT = "exact factored", "soft factored"
TRAINED_POSITIONS = "trained positions"
TRAINED_CONTENT = ("trained positions and content in one softmax", "trained positions and gated content")
FREE, DENSE = "free separable", "free SDPA"
CONVERTED, CONVERTED_SOFT, CONVERSION = "converted", "converted, soft", "convert_model"

_FORWARD, _TRAINING = Phase.forward, Phase.training
_Place = tuple[str, str, Phase, str]  # a table, a layer, a phase and a candidate: one row


@dataclass(frozen=True)
class Criterion:
    """One number that must not be above, or not below, its target.

    Attributes:
        name: What is compared.
        target: The limit.
        value: What was measured, or None.
        in_bytes: Whether the numbers are bytes; otherwise they are ratios.
        at_least: Whether the target is a lower limit.
    """

    name: str
    target: float
    value: float | None
    in_bytes: bool = False
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Met, missed or not measured."""
        if self.value is None:
            return NOT_MEASURED
        return MET if (self.value >= self.target if self.at_least else self.value <= self.target) else MISSED

    def cells(self) -> tuple[str, str, str, str]:
        """The criterion as a row of a table."""
        form = format_bytes if self.in_bytes else "{:.3g}".format
        limit = f"at {'least' if self.at_least else 'most'} {form(self.target)}"
        return self.name, limit, "-" if self.value is None else form(self.value), self.verdict

    def to_json(self) -> dict[str, Any]:
        """The criterion as plain data, with its verdict."""
        return vars(self) | {"verdict": self.verdict}


# Over a table: the geometric mean of a candidate's ratios, and the worst of them where it has a limit.
_MEANS: tuple[tuple[str, tuple[str, Kind, Phase, str], float, float | None], ...] = (
    ("exact regime / F.conv2d, ResNet-50", ("resnet50", Kind.dense, _FORWARD, EXACT), 1.02, 1.15),
    ("exact regime / F.conv2d, ResNet-50", ("resnet50", Kind.dense, _TRAINING, EXACT), 1.02, 1.25),
    ("soft factored / F.conv2d, ResNet-50", ("resnet50", Kind.dense, _FORWARD, SOFT), 1.2, 1.8),
    ("soft factored / F.conv2d, MobileNetV2's dense layers", ("mobilenetv2", Kind.dense, _FORWARD, SOFT), 1.3, 2),
    (
        "soft factored / F.conv2d, MobileNetV2's depthwise layers",
        ("mobilenetv2", Kind.depthwise, _FORWARD, SOFT),
        2.5,
        None,
    ),
)

# Of one row: its ratio to the first candidate.
_RATIOS: tuple[tuple[str, _Place, float], ...] = (
    ("separable, free heads / F.conv2d, 56x56", ("ladder", "56x56", _FORWARD, FREE), 4),
    *(
        (f"{way} / F.conv2d, {layer}, {_TRAINING}", (table, layer, _TRAINING, way), limit)
        for table, ways, limits in (
            (
                POSITIONS,
                (TRAINED_POSITIONS,),
                {f"{n} channels, {s}x{s}": 2.5 for n, s in ((64, 32), (256, 14), (128, 56))},
            ),
            (CONTENT, TRAINED_CONTENT, {"64 channels, 16x16": 30, "256 channels, 14x14": 6}),
        )
        for layer, limit in limits.items()
        for way in ways
    ),
    ("whole ResNet-50, converted / CNN: time", (NETWORK, "resnet50", _FORWARD, CONVERTED), 1.02),
    ("whole ResNet-50, soft / CNN, forward: time", (NETWORK, "resnet50", _FORWARD, CONVERTED_SOFT), 1.2),
    ("whole MobileNetV2, soft / CNN, forward: time", (NETWORK, "mobilenetv2", _FORWARD, CONVERTED_SOFT), 1.5),
    ("convert_model / copy.deepcopy of ResNet-50: time", (NETWORK, "resnet50", Phase.conversion, CONVERSION), 2),
)

# Of one row: its peak memory, at most a GiB.
_PEAKS: tuple[tuple[str, _Place], ...] = (
    ("peak memory, soft factored, 224x224", ("ladder", "224x224", _FORWARD, SOFT)),
    ("peak memory, separable with free heads, 224x224", ("ladder", "224x224", _FORWARD, FREE)),
    *(
        (f"peak memory, {way}, 64 channels, 56x56, {_TRAINING}", (CONTENT, "64 channels, 56x56", _TRAINING, way))
        for way in TRAINED_CONTENT
    ),
)


def evaluate(rows: Sequence[Row]) -> tuple[Criterion, ...]:
    """Holds measured rows against every criterion; what needs rows that are not there is not measured."""
    summaries = {(s.table, s.kind, s.phase, s.candidate): s for s in summarise(rows) if s.is_complete}
    found = []
    for name, place, mean, worst in _MEANS:
        summary, shown = summaries.get(place), f"{name}, {place[2]}"
        found.append(Criterion(f"{shown}: geometric mean", mean, None if summary is None else summary.mean))
        if worst is not None:
            found.append(Criterion(f"{shown}: worst layer", worst, None if summary is None else summary.worst))
    found += [Criterion(name, limit, _value(rows, place, _ratio)) for name, place, limit in _RATIOS]
    found += [Criterion(name, GIB, _value(rows, place, _peak), in_bytes=True) for name, place in _PEAKS]
    return (*found, *_comparisons(rows), predicted_order(rows))


def _comparisons(rows: Sequence[Row]) -> list[Criterion]:
    """One row's number over that of another."""
    dense, free = (_value(rows, ("ladder", "56x56", _FORWARD, name), _ms) for name in (DENSE, FREE))
    converted, cnn = (_value(rows, (NETWORK, "resnet50", _FORWARD, name), _peak) for name in (CONVERTED, "CNN"))
    faster = None if free is None or dense is None else dense / free
    memory = None if converted is None or cnn is None else converted / cnn
    return [
        Criterion("dense SDPA with bias / separable, free heads, 56x56", 50, faster, at_least=True),
        Criterion("whole ResNet-50, converted / CNN: peak memory", 1.05, memory),
    ]


def predicted_order(rows: Sequence[Row]) -> Criterion:
    """In how many pairs of engines for the same layer and regime the one with fewer predicted FLOPs is faster."""
    groups: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if row.phase is _FORWARD and row.flops is not None and row.measurement is not None:
            regime = row.candidate.partition(" ")[0]
            groups.setdefault((row.table, row.layer, regime), []).append((row.flops, row.measurement.ms))
    pairs = [pair for group in groups.values() for pair in combinations(sorted(group), 2)]
    agreeing = sum(fewer[1] < more[1] for fewer, more in pairs)
    name = "pairs of engines whose order the planner predicts"
    return Criterion(name, PREDICTED, agreeing / len(pairs) if pairs else None, at_least=True)


def _value(rows: Sequence[Row], wanted: _Place, value: Callable[[Row], float | None]) -> float | None:
    """A number of the one row of this place; None if it was not measured."""
    return next((value(r) for r in rows if (r.table, r.layer, r.phase, r.candidate) == wanted), None)


def _ms(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.ms


def _ratio(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.ratio


def _peak(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.peak_bytes
