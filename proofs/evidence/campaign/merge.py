"""Adds up the results of several runs: shards of one campaign, or campaigns of several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from sympy.ntheory.modular import solve_congruence

from ....convert.errors import CheckpointError, SelectionError
from ....convert.files.readers.common.limits import read_json
from ...terminal.outcome import JSON_VERSION
from .report import COMMAND
from .result import Campaign, Part
from .tally import Tally


def merge(paths: Sequence[Path]) -> Campaign:
    """The sum of the campaigns in some files.

    Args:
        paths: Results of campaigns, as JSON.

    Raises:
        CheckpointError: A file cannot be read or is no result of a campaign.
        SelectionError: The campaigns are not of one kind, or some layer is in two of them.
    """
    campaigns = [read_campaign(path) for path in paths]
    first = campaigns[0]
    for path, other in zip(paths, campaigns, strict=True):
        if other.versions != first.versions:
            raise SelectionError(
                f"{path} is of {other.versions}, {paths[0]} of {first.versions}; one sum has one version"
            )
        if other.settings != first.settings:
            raise SelectionError(f"{path} has {other.settings}, {paths[0]} has {first.settings}: not the same checks")
    _check_disjoint(paths, campaigns)
    stopped = [campaign.stopped for campaign in campaigns if campaign.stopped is not None]
    return Campaign(
        settings=first.settings,
        parts=tuple(sorted(part for campaign in campaigns for part in campaign.parts)),
        tally=Tally.total(campaign.tally for campaign in campaigns),
        seconds=sum(campaign.seconds for campaign in campaigns),
        stopped=stopped[0] if stopped else None,
        runs=tuple(dict.fromkeys(run for campaign in campaigns for run in campaign.runs)),
        versions=first.versions,
    )


def read_campaign(path: Path) -> Campaign:
    """Reads one result.

    Raises:
        CheckpointError: The file cannot be read or is no result of a campaign.
    """
    try:
        if not path.is_file():
            raise CheckpointError(f"{path} cannot be read: {'it is' if path.exists() else 'there is'} no file")
        data: Any = read_json(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(data, dict) or data.get("command") != COMMAND or "campaign" not in data:
        raise CheckpointError(f"{path} is not the result of a campaign")
    if data.get("version") != JSON_VERSION:
        raise CheckpointError(f"{path} has the version {data.get('version')}; this program reads {JSON_VERSION}")
    try:
        return Campaign.from_json(data["campaign"])
    except (ValueError, SelectionError, AttributeError) as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error


def _check_disjoint(paths: Sequence[Path], campaigns: Sequence[Campaign]) -> None:
    parts = [(path, part) for path, campaign in zip(paths, campaigns, strict=True) for part in campaign.parts]
    for (one_path, one), (other_path, other) in combinations(parts, 2):
        common = _common_layer(one, other)
        if common is not None:
            raise SelectionError(f"layer {common} of seed {one.seed} is both in {one_path} and in {other_path}")


def _common_layer(one: Part, other: Part) -> int | None:
    """The first layer that is in both parts, or None."""
    if one.seed != other.seed:
        return None
    steps = solve_congruence(*((part.first % part.step, part.step) for part in (one, other)))
    if steps is None or not one.count or not other.count:
        return None
    layer, period = map(int, steps)
    start, stop = max(one.first, other.first), min(one.indices.stop - one.step, other.indices.stop - other.step)
    layer += -((layer - start) // period) * period  # the first one that is not before the start
    return layer if layer <= stop else None
