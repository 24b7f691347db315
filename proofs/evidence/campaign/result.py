"""Result of a campaign, as data and as tables and sentences, and the sum of several results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ....convert.errors import CheckpointError, SelectionError
from ....convert.plain import from_plain, read_object
from ...terminal.output import Table
from .settings import Settings, Shard
from .tally import Finding, Tally

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
        return [*tables, *self._failures(), *self._verdict()]

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
        found = f"{total.violations:,} violations in {tally.failed:,} layers" if tally.failed else "no violation"
        cut = "" if self.stopped is None else f" ({self.stopped})"
        worst = total.worst
        return [
            f"{tally.layers:,} layers{cut}, {total.comparisons:,} comparisons: {found}.",
            f"{self.seconds:.1f} s, {self.layers_per_second:.1f} layers/s.",
            *([f"Largest error / bound: {_ratio(worst)}, layer {worst.index}: {worst.layer}."] if worst.ratio else []),
            *self.runs,
            *map(str, self.parts),
        ]


def _ratio(finding: Finding) -> str:
    return "not equal" if finding.ratio == sys.float_info.max else f"{finding.ratio:.4g}"


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
