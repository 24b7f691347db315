"""A campaign as tables and sentences."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from ...terminal.table import Table
from .counterexample import Counterexample
from .result import Campaign, Part
from .tally import Extreme

COMMAND = "soak"  # what JSON calls it


@dataclass(frozen=True)
class Soak:
    """A campaign, and the first layer that failed.

    Attributes:
        campaign: What was found.
        counterexample: A simple layer that fails, or None if none does, or nobody looked for it.
    """

    campaign: Campaign
    counterexample: Counterexample | None = None

    @property
    def exit_code(self) -> int:
        """Interrupted, violated, or fine."""
        return self.campaign.exit_code

    def to_json(self) -> dict[str, Any]:
        """The soak as plain data."""
        example = self.counterexample
        return {"campaign": self.campaign.to_json(), "counterexample": None if example is None else example.snippet}

    def shown(self) -> list[Table | str]:
        """The soak as tables and lines."""
        campaign = self.campaign
        failures = failure_lines(campaign, self.counterexample)
        return [option_table(campaign), check_table(campaign), *failures, *verdict(campaign)]


def option_table(campaign: Campaign) -> Table:
    """How many of the layers had each option."""
    rows = sorted(campaign.tally.options.items(), key=lambda item: (-item[1], item[0]))
    return Table(("layers with", "count"), tuple(rows))


def check_table(campaign: Campaign) -> Table:
    """What each check found, and where its error came nearest to the bound."""
    return Table(
        ("check, attention", "comparisons", "violations", "largest error / bound", "in layer"),
        tuple(
            (name, check.comparisons, check.violations, ratio(check.worst), _where(check.worst))
            for name, check in campaign.tally.checks.items()
        ),
    )


def verdict(campaign: Campaign) -> list[str]:
    """The result in a few sentences, a line each."""
    tally = campaign.tally
    found = "no violation" if campaign.is_clean else f"{tally.violations:,} violations in {tally.failed:,} layers"
    cut = "" if campaign.stopped is None else f" ({campaign.stopped})"
    return [
        f"{tally.layers:,} layers{cut}, {tally.comparisons:,} comparisons: {found}.",
        f"{campaign.seconds:.1f} s, {campaign.layers_per_second:.1f} layers/s.",
        *_nearest(tally.worst),
        "; ".join((*campaign.runs, *(f"{name} {version}" for name, version in campaign.versions.items()))) + ".",
        *(f"Seed {part.seed}, {_part(part)}" for part in campaign.parts),
    ]


def failure_lines(campaign: Campaign, example: Counterexample | None) -> list[str]:
    """The failures, and how to see the first of them."""
    tally = campaign.tally
    lines = [f"layer {failure.index} of seed {failure.seed}: {failure.what}" for failure in tally.failures]
    if tally.failed > len(tally.failures):
        lines.append(f"and {tally.failed - len(tally.failures):,} more layers")
    if example is not None:
        lines += ["", "The first one, made as simple as it fails:", "", *example.snippet.rstrip().splitlines(), ""]
        lines += [f"# {violation}" for violation in example.violations]
    return lines


def ratio(extreme: Extreme) -> str:
    """The ratio in words."""
    return "not equal" if extreme.ratio == sys.float_info.max else f"{extreme.ratio:.4g}"


def _where(extreme: Extreme) -> str:
    return "" if extreme.index < 0 else f"{extreme.index}: {extreme.what}"


def _nearest(worst: Extreme) -> list[str]:
    """The layer with the largest ratio."""
    return [f"Largest error / bound: {ratio(worst)}, layer {worst.index}: {worst.layer}."] if worst.ratio > 0 else []


def _part(part: Part) -> str:
    """The layers of a part in words."""
    return f"layers {part.first}, {part.first + part.step}, ..." if part.step > 1 else f"layers from {part.first}"
