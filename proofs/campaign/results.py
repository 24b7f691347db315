"""A campaign as data: its settings and shards, its comparisons added up, its result as tables and sentences.

Tallies of different layers can be added in any order, also from files; so can results.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ...convert.engines import ENGINES
from ...convert.errors import CheckpointError, SelectionError
from ...convert.plain import from_plain, read_object
from ...show.text import Table
from .case import Comparison
from .layers import DEFAULT_MAX_SIZE, DTYPES, SMALL_SIZE, RandomLayer, draw_layer

PLACEHOLDER = "{shard}"
LARGEST_SIZE = 64  # pixels a side: the literal engine's memory grows with the fourth power


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


@dataclass(frozen=True)
class Shard:
    """One of ``count`` shards: the layers whose index is ``number`` modulo ``count``.

    Raises:
        SelectionError: There is no such shard.
    """

    number: int = 0  # from 0 to count - 1
    count: int = 1  # number of shards of the campaign

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise SelectionError(f"a shard is i/n with 0 <= i < n; got {self}")

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """The shard "i/n"; without a text, RANK of WORLD_SIZE, as torchrun sets them, or else the whole campaign.

        Raises:
            SelectionError: The text does not name a shard.
        """
        if text is None:
            known = "RANK" in os.environ and "WORLD_SIZE" in os.environ
            text = f"{os.environ['RANK']}/{os.environ['WORLD_SIZE']}" if known else "0/1"
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None:
            raise SelectionError(f"a shard is i/n with 0 <= i < n, like 0/4; got {text!r}")
        return cls(int(match[1]), int(match[2]))

    def own_file(self, path: Path) -> Path:
        """The file of its result: "{shard}" in the name stands for the shard, like 0-of-4.

        Raises:
            SelectionError: Several shards would write the same file.
        """
        if self.count > 1 and PLACEHOLDER not in path.name:
            raise SelectionError(f"{path} would be written by {self.count} processes; put {PLACEHOLDER} into its name")
        return path.with_name(path.name.replace(PLACEHOLDER, f"{self.number}-of-{self.count}"))

    def indices(self, layers: int) -> range:
        """Indices of its layers, among the first ``layers`` of a seed."""
        return range(self.number, layers, self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


KEPT_FAILURES = 10  # layers that are named; all are counted


@dataclass(frozen=True, order=True)
class Finding:
    """One comparison of a layer."""

    # error in units of the bound; the largest double where the bound is 0, since JSON has no infinity
    ratio: float = 0.0
    seed: int = -1  # seed of the campaign
    index: int = -1
    what: str = ""  # the comparison, in words
    layer: str = ""  # the layer, in words


@dataclass(frozen=True)
class CheckTally:
    """Tally of one check over many layers."""

    comparisons: int = 0
    violations: int = 0  # number of comparisons that failed
    worst: Finding = Finding()  # the comparison nearest to its bound, or farthest above it

    def __add__(self, other: CheckTally) -> CheckTally:
        comparisons, violations = self.comparisons + other.comparisons, self.violations + other.violations
        return CheckTally(comparisons, violations, max(self.worst, other.worst))


@dataclass(frozen=True)
class Tally:
    """Tally of many layers."""

    layers: int = 0
    options: Mapping[str, int] = field(default_factory=dict)  # number of layers with each option
    checks: Mapping[str, CheckTally] = field(default_factory=dict)  # tally of each check on each kind of attention
    failed: int = 0  # number of layers with a violation
    failures: tuple[Finding, ...] = ()  # the first violation of the first failed layers

    @classmethod
    def of(cls, layer: RandomLayer, comparisons: Sequence[Comparison], *, seed: int, index: int) -> Self:
        """The tally of the comparisons made on one layer."""
        checks: dict[str, CheckTally] = {}
        wrong: list[Finding] = []
        described = str(layer)
        for made in comparisons:
            found = Finding(min(made.ratio, sys.float_info.max), seed, index, made.what, described)
            name = f"{made.check}, {made.kind}"
            one = CheckTally(1, int(not made.holds), found if found.ratio > 0 else Finding())
            checks[name] = checks.get(name, CheckTally()) + one
            if not made.holds:
                wrong.append(Finding(found.ratio, seed, index, str(made), described))
        return cls(1, dict.fromkeys(options(layer), 1), checks, int(bool(wrong)), tuple(wrong[:1]))

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys([*self.checks, *other.checks])
        failures = sorted(self.failures + other.failures, key=lambda failure: (failure.seed, failure.index))
        return Tally(
            self.layers + other.layers,
            dict(Counter(self.options) + Counter(other.options)),
            {name: self.checks.get(name, CheckTally()) + other.checks.get(name, CheckTally()) for name in names},
            self.failed + other.failed,
            tuple(failures[:KEPT_FAILURES]),
        )

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum."""
        return sum(tallies, start=Tally())

    @property
    def all_checks(self) -> CheckTally:
        """The tally of all checks together."""
        return sum(self.checks.values(), start=CheckTally())


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


COMMANDS = ("soak", "verify")  # the commands whose JSON holds a campaign
INTERRUPTED, OUT_OF_TIME = "interrupted", "out of time"


@dataclass(frozen=True, order=True)
class Part:
    """Layers that one run checked: ``first``, ``first + step``, and so on, ``count`` in all."""

    seed: int  # the seed that the layers are drawn from
    first: int  # index of the first one, the number of the shard
    step: int  # the number of shards
    count: int  # number of layers

    def __post_init__(self) -> None:
        Shard(self.first, self.step)

    def may_meet(self, other: Part) -> bool:
        """Whether a layer may be in both: parts of one seed are disjoint only as different shards of one count."""
        return self.seed == other.seed and (self.step != other.step or self.first == other.first)

    def __str__(self) -> str:
        following = f"layers {self.first}, {self.first + self.step}, ..."
        return f"Seed {self.seed}, {following if self.step > 1 else f'layers from {self.first}'}"


@dataclass(frozen=True)
class Campaign:
    """The result of a campaign."""

    settings: Settings
    parts: tuple[Part, ...]  # the layers that it checked
    tally: Tally
    seconds: float  # its duration; for added campaigns, the sum
    stopped: str | None  # why it did not check every layer it was asked for, or None
    runs: tuple[str, ...]  # the machine, the versions and the day of each run

    @property
    def layers_per_second(self) -> float:
        """The throughput."""
        return self.tally.layers / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        """130 if it was interrupted, 1 if there is a violation, else 0."""
        return 130 if self.stopped == INTERRUPTED else int(self.tally.failed > 0)

    def to_json(self) -> dict[str, Any]:
        """The campaign as plain data, with the throughput."""
        return {"campaign": asdict(self) | {"layers_per_second": self.layers_per_second}}

    def shown(self) -> list[Table | str]:
        """Counts of layers by option, the result of each check, the failures, and the verdict."""
        options = sorted(self.tally.options.items(), key=lambda item: (-item[1], item[0]))
        checks = (
            (
                *(name, check.comparisons, check.violations, _ratio(check.worst)),
                f"{check.worst.index}: {check.worst.what}" if check.worst.ratio else "",
            )
            for name, check in self.tally.checks.items()
        )
        header = ("check, attention", "comparisons", "violations", "largest error / bound", "in layer")
        tables = [Table(("layers with", "count"), tuple(options)), Table(header, tuple(checks))]
        return [*self._verdict()[:1], *tables, LEGEND, *self._failures(), *self._verdict()]

    def _failures(self) -> list[str]:
        """The first failed layers, and the command that checks the first of them again."""
        tally = self.tally
        if not tally.failures:
            return []
        lines = [f"layer {failure.index} of seed {failure.seed}: {failure.what}" for failure in tally.failures]
        more = tally.failed - len(tally.failures)
        return [
            *lines,
            *([f"and {more:,} more layers"] if more else []),
            f"The first one again: {self._replay(tally.failures[0])}",
        ]

    def _replay(self, failure: Finding) -> str:
        """The command that checks one layer: it is a shard of its own, in a campaign that ends with it."""
        seed, index, own, usual = failure.seed, failure.index, self.settings, Settings()
        parts = [f"conv2attn soak --seed {seed} --layers {index + 1} --shard {index}/{index + 1}"]
        parts += [f"--engine {name}" for name in own.engines if own.engines != usual.engines]
        parts += [f"--dtype {name}" for name in own.dtypes if own.dtypes != usual.dtypes]
        parts += [f"--device {own.device}"] if own.device != usual.device else []
        parts += [f"--max-size {own.max_size}"] if own.max_size != usual.max_size else []
        return " ".join(parts)

    def _verdict(self) -> list[str]:
        """The result in a few sentences, a line each."""
        tally, total = self.tally, self.tally.all_checks
        if not tally.layers and self.stopped is not None:
            return [f"Nothing was checked ({self.stopped})."]
        found = f"{total.violations:,} violations in {tally.failed:,} layers" if tally.failed else "no violation"
        cut = "" if self.stopped is None else f" ({self.stopped})"
        worst = total.worst
        return [
            f"{tally.layers:,} layers{cut}, {total.comparisons:,} comparisons: {found}.",
            f"{self.seconds:.1f} s, {self.layers_per_second:.1f} layers/s.",
            *(
                [f"Largest error: {_share(worst)} of its bound, in layer {worst.index}: {worst.layer}."]
                if worst.ratio
                else []
            ),
            *self.runs,
            *map(str, self.parts),
        ]


LEGEND = (
    "Integers: outputs of small integers, equal bit for bit. Certificate: outputs on normal numbers, within the bound. "
    "Adversarial, extremes: the same on inputs, and weights, that were made to break it. Gradients: equal bit for bit. "
    "Round trip: the convolution comes back. Autocast: as certificate, in reduced precision."
)
"""The checks' comparisons, for people."""


def _ratio(finding: Finding) -> str:
    """The error as a multiple of its bound; below 1, never rounded up to 1."""
    return _shown(finding.ratio, ".4g")


def _share(finding: Finding) -> str:
    """The same as a percentage."""
    return _shown(finding.ratio, ".2%")


def _shown(ratio: float, form: str) -> str:
    return "not equal" if ratio == sys.float_info.max else format(min(ratio, 0.9999) if ratio < 1 else ratio, form)


def merge(paths: Sequence[Path]) -> Campaign:
    """The sum of the campaigns in some files: shards of one campaign, or campaigns of several seeds.

    Args:
        paths: Results of campaigns, as JSON.

    Raises:
        CheckpointError: A file cannot be read or is no result of a campaign.
        SelectionError: The campaigns do not have the same settings, or some layer may be in two of them.
    """
    campaigns = list(map(read_campaign, paths))
    first, parts = campaigns[0], [part for campaign in campaigns for part in campaign.parts]
    for path, campaign in zip(paths, campaigns, strict=True):
        if campaign.settings != first.settings:
            raise SelectionError(
                f"{path} has {campaign.settings}, {paths[0]} has {first.settings}: not the same checks"
            )
    for number, part in enumerate(parts):
        for other in parts[:number]:
            if part.may_meet(other):
                shards = f"{other.first}/{other.step} and {part.first}/{part.step}"
                raise SelectionError(f"the shards {shards} of seed {part.seed} may have layers in common")
    return Campaign(
        settings=first.settings,
        parts=tuple(sorted(parts)),
        tally=Tally.total(campaign.tally for campaign in campaigns),
        seconds=sum(campaign.seconds for campaign in campaigns),
        stopped=next((campaign.stopped for campaign in campaigns if campaign.stopped is not None), None),
        runs=tuple(dict.fromkeys(run for campaign in campaigns for run in campaign.runs)),
    )


def read_campaign(path: Path) -> Campaign:
    """Reads one result.

    Raises:
        CheckpointError: The file cannot be read or is no result of a campaign.
    """
    data = read_object(path)
    if data.get("command") not in COMMANDS or not isinstance(data.get("campaign"), dict):
        raise CheckpointError(f"{path} is not the result of a campaign")
    try:
        fields = {name: value for name, value in data["campaign"].items() if name != "layers_per_second"}
        return from_plain(Campaign, fields)
    except ValueError as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error
