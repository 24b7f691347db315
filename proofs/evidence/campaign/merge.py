"""Adds up the results of several runs: shards of one campaign, or campaigns of several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....convert.errors import CheckpointError, SelectionError
from ....convert.plain import read_json
from ...terminal.outcome import JSON_VERSION
from .result import COMMANDS, Campaign
from .tally import Tally


def merge(paths: Sequence[Path]) -> Campaign:
    """The sum of the campaigns in some files.

    Args:
        paths: Results of campaigns, as JSON.

    Raises:
        CheckpointError: A file cannot be read or is no result of a campaign.
        SelectionError: The campaigns are not of one kind, or some layer may be in two of them.
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
    return Campaign(
        settings=first.settings,
        parts=tuple(sorted(part for campaign in campaigns for part in campaign.parts)),
        tally=Tally.total(campaign.tally for campaign in campaigns),
        seconds=sum(campaign.seconds for campaign in campaigns),
        stopped=next((campaign.stopped for campaign in campaigns if campaign.stopped is not None), None),
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
    if not isinstance(data, dict) or data.get("command") not in COMMANDS or "campaign" not in data:
        raise CheckpointError(f"{path} is not the result of a campaign")
    if data.get("version") != JSON_VERSION:
        raise CheckpointError(f"{path} has the version {data.get('version')}; this program reads {JSON_VERSION}")
    try:
        return Campaign.from_json(data["campaign"])
    except (ValueError, SelectionError, AttributeError) as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error


def _check_disjoint(paths: Sequence[Path], campaigns: Sequence[Campaign]) -> None:
    """Refuses parts that could share a layer: of one seed, only different shards of one number of shards cannot.

    Their layers have different indices modulo that number, since a part begins with the index of its shard.
    """
    found = [(path, part) for path, campaign in zip(paths, campaigns, strict=True) for part in campaign.parts]
    for number, (path, part) in enumerate(found):
        for other_path, other in found[:number]:
            if part.seed == other.seed and (
                part.step != other.step or part.first % part.step == other.first % other.step
            ):
                shards = f"{other.first}/{other.step} and {part.first}/{part.step}"
                raise SelectionError(
                    f"{other_path} and {path} have the shards {shards} of seed {part.seed}, "
                    "which may have layers in common"
                )
