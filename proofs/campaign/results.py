"""A campaign as data: its settings, its comparisons added up, its result as tables and sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...convert.engines import ENGINES
from ...convert.errors import SelectionError
from ...show.text import Table
from .case import Comparison
from .checks import CHECKS
from .layers import DEFAULT_MAX_SIZE, DTYPES, SMALL_SIZE, RandomLayer, draw_layer

LARGEST_SIZE = 64  # pixels a side: the literal engine's memory grows with the fourth power
KEPT_FAILURES = 10  # layers that are named; all are counted
INTERRUPTED, OUT_OF_TIME = "interrupted", "out of time"


@dataclass(frozen=True)
class Settings:
    """Settings of a campaign: the same settings and seed give the same layers and verdicts.

    Raises:
        SelectionError: There is no such engine or precision, or a size out of range.
    """

    engines: tuple[str, ...] = tuple(ENGINES)  # engines to check, each where it does not refuse
    dtypes: tuple[str, ...] = DTYPES  # precisions to draw from
    device: str = "cpu"  # where to compute
    max_size: int = DEFAULT_MAX_SIZE  # largest rows and columns of an input, where the geometry accepts so small ones

    def __post_init__(self) -> None:
        for kind, given, known in (("engine", self.engines, tuple(ENGINES)), ("precision", self.dtypes, DTYPES)):
            if not given or not set(given) <= set(known) or len(set(given)) < len(given):
                raise SelectionError(f"each {kind} must be one of {', '.join(known)}, once; got {', '.join(given)}")
        if not 1 <= self.max_size <= LARGEST_SIZE:
            raise SelectionError(f"the largest size must be 1 to {LARGEST_SIZE}; got {self.max_size}")

    @classmethod
    def of(cls, engines: Sequence[str] | None, dtypes: Sequence[str] | None, **others: Any) -> Settings:
        """The settings that a user asks for; no engines and no precisions mean all."""
        return cls(tuple(engines or ENGINES), tuple(map(str, dtypes or DTYPES)), **others)

    def layer(self, seed: int, index: int) -> RandomLayer:
        """Layer ``index`` of a seed."""
        return draw_layer(seed, index, dtypes=self.dtypes, max_size=self.max_size)


@dataclass(frozen=True, order=True)
class Finding:
    """One comparison of a layer."""

    # error in units of the bound; the largest double where the bound is 0, since JSON has no infinity
    ratio: float = 0.0
    index: int = -1
    what: str = ""  # the comparison, in words
    layer: str = ""  # the layer, in words


@dataclass
class Tally:
    """Comparisons of one check on one kind of attention, added up over layers."""

    comparisons: int = 0  # with a bound
    violations: int = 0  # number of comparisons that failed
    unbounded: int = 0  # number of certificates that say nothing, since a sum can overflow
    worst: Finding = Finding()  # the comparison nearest to its bound, or farthest above it


@dataclass
class Campaign:
    """The result of a campaign: comparisons of layers, which ``add`` adds up."""

    settings: Settings
    seed: int  # the seed that the layers are drawn from
    first: int  # index of the first layer
    run: str  # the machine, the versions and the day
    layers: int = 0  # number of layers that were checked
    seconds: float = 0.0  # its duration
    stopped: str | None = None  # why it did not check every layer it was asked for, or None
    options: dict[str, int] = field(default_factory=dict)  # number of layers with each option
    # tallies of each check, by the kind of attention
    checks: dict[str, dict[str, Tally]] = field(default_factory=lambda: {name: {} for name in CHECKS})
    failed: int = 0  # number of layers with a violation
    failures: list[Finding] = field(default_factory=list)  # the first violation of the first failed layers

    def add(self, index: int, layer: RandomLayer, comparisons: Sequence[Comparison]) -> None:
        """Adds the comparisons made on one layer. Layers come in the order of their indices."""
        described, wrong = str(layer), None
        for made in comparisons:
            tally = self.checks[made.check].setdefault(made.kind, Tally())
            if made.says_nothing:
                tally.unbounded += 1
                continue
            found = Finding(min(made.ratio, sys.float_info.max), index, made.what, described)
            tally.comparisons += 1
            if found.ratio > 0:
                tally.worst = max(tally.worst, found)
            if not made.holds:
                tally.violations += 1
                wrong = wrong or Finding(found.ratio, index, str(made), described)
        if wrong is not None:
            self.failed += 1
            self.failures = [*self.failures, wrong][:KEPT_FAILURES]
        self.layers += 1
        for name in options(layer):
            self.options[name] = self.options.get(name, 0) + 1

    @property
    def tallies(self) -> list[Tally]:
        """All tallies."""
        return [tally for kinds in self.checks.values() for tally in kinds.values()]

    @property
    def violations(self) -> int:
        """Number of comparisons that failed."""
        return sum(tally.violations for tally in self.tallies)

    @property
    def empty_checks(self) -> list[str]:
        """Checks that compared nothing, and so have not passed."""
        return [name for name, kinds in self.checks.items() if not any(tally.comparisons for tally in kinds.values())]

    @property
    def layers_per_second(self) -> float:
        """The throughput."""
        return self.layers / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        """130 if it was interrupted, 1 if there is a violation or a check compared nothing, else 0."""
        return 130 if self.stopped == INTERRUPTED else int(bool(self.failed or self.empty_checks))

    def to_json(self) -> dict[str, Any]:
        """The campaign as plain data, with the throughput."""
        return {"campaign": asdict(self) | {"layers_per_second": self.layers_per_second}}

    def shown(self) -> list[Table | str]:
        """Counts of layers by option, the result of each check, the failures, and last the verdict."""
        options = sorted(self.options.items(), key=lambda item: (-item[1], item[0]))
        checks = [
            (
                *(f"{check}, {kind}", tally.comparisons, tally.unbounded, tally.violations),
                _shown(tally.worst.ratio, ".4g"),
                f"{tally.worst.index}: {tally.worst.what}" if tally.worst.ratio else "",
            )
            for check, kinds in self.checks.items()
            for kind, tally in kinds.items()
        ]
        header = (
            "check, attention",
            "comparisons",
            "no worst case",
            "violations",
            "largest difference / worst case",
            "in layer",
        )
        tables = [Table(("layers with", "count"), tuple(options)), Table(header, tuple(checks))]
        return [*tables, *([LEGEND] if checks else []), *self._failures(), *self._verdict()]

    def _failures(self) -> list[str]:
        """The first failed layers, and the command that checks the first of them again."""
        if not self.failures:
            return []
        lines = [f"layer {failure.index} of seed {self.seed}: {failure.what}" for failure in self.failures]
        more = self.failed - len(self.failures)
        own, usual = self.settings, Settings()
        again = [f"conv2attn soak --seed {self.seed} --first {self.failures[0].index} --layers 1"]
        again += [f"--engine {name}" for name in own.engines if own.engines != usual.engines]
        again += [f"--dtype {name}" for name in own.dtypes if own.dtypes != usual.dtypes]
        again += [f"--device {own.device}"] if own.device != usual.device else []
        again += [f"--max-size {own.max_size}"] if own.max_size != usual.max_size else []
        repeat = f"To repeat the first failure: {' '.join(again)}"
        return [*lines, *([f"and {more:,} more layers"] if more else []), repeat]

    def _verdict(self) -> list[str]:
        if not self.layers and self.stopped is not None:
            return [f"Nothing was checked ({self.stopped})."]
        found = (
            f"{_counted(self.violations, 'violation')} in {_counted(self.failed, 'layer')}"
            if self.failed
            else "no violation"
        )
        cut = "" if self.stopped is None else f" ({self.stopped})"
        worst = max((tally.worst for tally in self.tallies), default=Finding())
        compared = sum(tally.comparisons for tally in self.tallies)
        lines = [f"{self.seconds:.1f} s, {self.layers_per_second:.1f} layers/s.", self.run]
        lines.append(f"Seed {self.seed}, layers from {self.first}")
        if worst.ratio:
            share = _shown(worst.ratio, ".2%")
            lines.append(
                f"Largest difference: {share} of its worst case, in layer {worst.index}: {worst.layer}."
                f"{' Adversarial inputs are built to come near 100%.' if worst.ratio <= 1 else ''}"
            )
        if self.empty_checks:
            lines.append(f"Checks that compared nothing: {', '.join(self.empty_checks)}. Check more layers.")
        return [*lines, f"{_counted(self.layers, 'layer')}{cut}, {compared:,} comparisons: {found}."]


def options(layer: RandomLayer) -> list[str]:
    """The options that a layer has, such as "stride > 1", as the summary counts them."""
    spec, size, pads = layer.spec, layer.size, layer.spec.pads
    present = {
        "stride > 1": max(spec.stride) > 1,
        "dilation > 1": max(spec.dilation) > 1,
        "groups > 1": spec.groups > 1,
        "depthwise": spec.groups == spec.in_channels > 1,
        "kernel 1x1": spec.num_heads == 1,
        "kernel even along an axis": any(length % 2 == 0 for length in spec.kernel_size),
        "kernel rectangular": len(set(spec.kernel_size)) > 1,
        "bias": spec.bias,
        "no bias": not spec.bias,
        "channels differ": spec.in_channels != spec.out_channels,
        "input not square": len(set(size)) > 1,
        "input longer than 10": max(size) > SMALL_SIZE,
        "kernel spans more than 256": max(map(max, spec.tap_offsets)) - min(map(min, spec.tap_offsets)) > 256,
        "channels last": layer.memory_format == "channels_last",
        "batch > 1": layer.batch > 1,
        'padding "same"': spec.padding == "same",
        "padding uneven": any(before != after for before, after in pads),
        'padding "valid"': spec.padding == "valid",
        f"padding, {spec.padding_mode}": any(map(any, pads)),
        "no padding": not any(map(any, pads)),
        "one axis": spec.axes == 1,
        "three axes": spec.axes == 3,
        "transposed": spec.transposed,
        "output padding": any(spec.output_padding),
    }
    return [*(name for name, has in present.items() if has), layer.dtype, f"soft alpha {layer.alpha:g}"]


LEGEND = (
    "Integers: outputs of small integers, equal bit for bit. Certificate: outputs on normal numbers, within the worst "
    "case. Adversarial, extremes: the same on inputs, and weights, that were made to break it; where a sum can "
    "overflow, extremes has no worst case. Gradients: equal bit for bit. "
    "Round trip: the convolution comes back. Autocast: as certificate, in reduced precision."
)
"""The checks' comparisons, for people."""


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _shown(ratio: float, form: str) -> str:
    """The error in units of its bound; below 1, never rounded up to 1."""
    return "not equal" if ratio == sys.float_info.max else format(min(ratio, 0.9999) if ratio < 1 else ratio, form)
