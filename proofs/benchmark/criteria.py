"""What the measured numbers must hold, and whether they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ...convert.size import format_bytes
from .candidates.results import Kind, Phase, Row, Summary, summarise
from .candidates.shapes import CONTENT, NETWORK, POSITIONS

MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"
GIB = 2**30
PREDICTED = 0.95  # of pairs; the rest are two engines as fast as each other

EXACT, SOFT = "exact factored", "soft factored"
TRAINED_POSITIONS = "trained positions"
TRAINED_CONTENT = ("trained positions and content in one softmax", "trained positions and gated content")
FREE, DENSE = "free separable", "free SDPA"
CONVERTED, CONVERTED_SOFT, CONVERSION = "converted", "converted, soft", "convert_model"


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

    @property
    def shown_target(self) -> str:
        """The limit in words."""
        return f"at {'least' if self.at_least else 'most'} {self._shown(self.target)}"

    @property
    def shown_value(self) -> str:
        """What was measured, in words."""
        return "" if self.value is None else self._shown(self.value)

    def _shown(self, number: float) -> str:
        return format_bytes(number) if self.in_bytes else f"{number:.3g}"

    def to_json(self) -> dict[str, Any]:
        """The criterion as plain data, with its verdict."""
        return vars(self) | {"verdict": self.verdict}


@dataclass(frozen=True)
class _Limit:
    """Limits for the ratios of one candidate over a table: their geometric mean, and the worst if it has one."""

    name: str
    table: str
    kind: Kind
    candidate: str
    mean: float
    worst: float | None
    phase: Phase = Phase.forward


_LIMITS = (
    _Limit("exact regime / F.conv2d, ResNet-50", "resnet50", Kind.dense, EXACT, 1.02, 1.15),
    _Limit("exact regime / F.conv2d, ResNet-50", "resnet50", Kind.dense, EXACT, 1.02, 1.25, Phase.training),
    _Limit("soft factored / F.conv2d, ResNet-50", "resnet50", Kind.dense, SOFT, 1.2, 1.8),
    _Limit("soft factored / F.conv2d, MobileNetV2's dense layers", "mobilenetv2", Kind.dense, SOFT, 1.3, 2),
    _Limit("soft factored / F.conv2d, MobileNetV2's depthwise layers", "mobilenetv2", Kind.depthwise, SOFT, 2.5, None),
)

_POSITION_LAYERS = ("64 channels, 32x32", "256 channels, 14x14", "128 channels, 56x56")
_CONTENT_LIMITS = {"64 channels, 16x16": 30, "256 channels, 14x14": 6}
_CONTENT_MEMORY = "64 channels, 56x56"


def evaluate(rows: Sequence[Row]) -> tuple[Criterion, ...]:
    """Holds measured rows against every criterion; what needs rows that are not there is not measured."""
    summaries = summarise(rows)
    means = (criterion for limit in _LIMITS for criterion in _means(summaries, limit))
    return (*means, *_ladder(rows), *_trained(rows), *_network(rows), _planner(rows))


def _means(summaries: Sequence[Summary], limit: _Limit) -> list[Criterion]:
    """The geometric mean and the worst ratio, only where no layer was left out."""
    wanted = (limit.table, limit.kind, limit.phase, limit.candidate)
    found = [s for s in summaries if (s.table, s.kind, s.phase, s.candidate) == wanted and s.is_complete]
    name = f"{limit.name}, {limit.phase}"
    criteria = [Criterion(f"{name}: geometric mean", limit.mean, found[0].mean if found else None)]
    if limit.worst is not None:
        criteria.append(Criterion(f"{name}: worst layer", limit.worst, found[0].worst if found else None))
    return criteria


def _ladder(rows: Sequence[Row]) -> list[Criterion]:
    """Single layers of the ladder."""

    def at(layer: str, candidate: str, value: Callable[[Row], float | None]) -> float | None:
        return _value(rows, ("ladder", layer, Phase.forward, candidate), value)

    free, dense = at("56x56", FREE, _ms), at("56x56", DENSE, _ms)
    faster = None if free is None or dense is None else dense / free
    return [
        Criterion("separable, free heads / F.conv2d, 56x56", 4, at("56x56", FREE, _ratio)),
        Criterion("dense SDPA with bias / separable, free heads, 56x56", 50, faster, at_least=True),
        Criterion("peak memory, soft factored, 224x224", GIB, at("224x224", SOFT, _peak), in_bytes=True),
        Criterion("peak memory, separable with free heads, 224x224", GIB, at("224x224", FREE, _peak), in_bytes=True),
    ]


def _trained(rows: Sequence[Row]) -> list[Criterion]:
    """Layers whose positions, and content, are trained."""

    def at(table: str, layer: str, candidate: str, value: Callable[[Row], float | None]) -> float | None:
        return _value(rows, (table, layer, Phase.training, candidate), value)

    times = [
        *((POSITIONS, layer, TRAINED_POSITIONS, 2.5) for layer in _POSITION_LAYERS),
        *((CONTENT, layer, way, limit) for layer, limit in _CONTENT_LIMITS.items() for way in TRAINED_CONTENT),
    ]
    return [
        *(
            Criterion(f"{way} / F.conv2d, {layer}, {Phase.training}", limit, at(table, layer, way, _ratio))
            for table, layer, way, limit in times
        ),
        *(
            Criterion(
                f"peak memory, {way}, {_CONTENT_MEMORY}, {Phase.training}",
                GIB,
                at(CONTENT, _CONTENT_MEMORY, way, _peak),
                in_bytes=True,
            )
            for way in TRAINED_CONTENT
        ),
    ]


def _network(rows: Sequence[Row]) -> list[Criterion]:
    """The whole network, and its conversion."""
    forward = (NETWORK, "resnet50", Phase.forward)
    peaks = [_value(rows, (*forward, candidate), _peak) for candidate in (CONVERTED, "CNN")]
    memory = None if peaks[0] is None or peaks[1] is None else peaks[0] / peaks[1]
    conversion = (NETWORK, "resnet50", Phase.conversion, CONVERSION)
    return [
        Criterion("whole ResNet-50, converted / CNN: time", 1.02, _value(rows, (*forward, CONVERTED), _ratio)),
        *(
            Criterion(
                f"whole {told}, soft / CNN, forward: time", target, _value(rows, (*place, CONVERTED_SOFT), _ratio)
            )
            for told, target, place in (
                ("ResNet-50", 1.2, forward),
                ("MobileNetV2", 1.5, (NETWORK, "mobilenetv2", Phase.forward)),
            )
        ),
        Criterion("whole ResNet-50, converted / CNN: peak memory", 1.05, memory),
        Criterion("convert_model / copy.deepcopy of ResNet-50: time", 2, _value(rows, conversion, _ratio)),
    ]


def _planner(rows: Sequence[Row]) -> Criterion:
    """In how many pairs of engines for the same layer and regime the one with fewer predicted FLOPs is faster."""
    groups: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if row.phase is Phase.forward and row.flops is not None and row.measurement is not None:
            regime = row.candidate.partition(" ")[0]
            groups.setdefault((row.table, row.layer, regime), []).append((row.flops, row.measurement.ms))
    pairs = [pair for group in groups.values() for pair in combinations(sorted(group), 2)]
    agreeing = sum(fewer[1] < more[1] for fewer, more in pairs)
    name = "pairs of engines whose order the planner predicts"
    return Criterion(name, PREDICTED, agreeing / len(pairs) if pairs else None, at_least=True)


def _value(
    rows: Sequence[Row], wanted: tuple[str, str, Phase, str], value: Callable[[Row], float | None]
) -> float | None:
    """A number of the one row of this table, layer, phase and candidate; None if it was not measured."""
    found = [row for row in rows if (row.table, row.layer, row.phase, row.candidate) == wanted]
    return value(found[0]) if found else None


def _ms(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.ms


def _ratio(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.ratio


def _peak(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.peak_bytes
