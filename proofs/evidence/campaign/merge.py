"""Adds up the results of several runs: shards of one campaign, or campaigns of several seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

from sympy.ntheory.modular import solve_congruence

from ....convert.errors import CheckpointError, SelectionError
from ....convert.plain import read_json
from ...terminal.outcome import JSON_VERSION
from .report import COMMAND
from .result import Campaign, Part
from .tally import Tally

_MOST_PAIRS = 100_000  # of parts that are compared one by one, in a few seconds
_Found = tuple[Path, Part]


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
    for (one_path, one), (other_path, other) in _to_compare(parts):
        common = _common_layer(one, other)
        if common is not None:
            raise SelectionError(f"layer {common} of seed {one.seed} is both in {one_path} and in {other_path}")


def _to_compare(found: Sequence[_Found]) -> Iterator[tuple[_Found, _Found]]:
    """Pairs of parts, enough of them that some pair has a layer in common if any two parts have one.

    Of parts with the same seed and step, only those with the same remainder can have one, and then two that follow each
    other. Parts of a seed with different steps are compared one by one, which are few where shards are added up.

    Raises:
        SelectionError: They are too many.
    """
    alike: dict[int, dict[int, list[_Found]]] = defaultdict(lambda: defaultdict(list))
    for path, part in found:
        if part.count:
            alike[part.seed][part.step].append((path, part))
    for steps in alike.values():
        for step, parts in steps.items():
            parts.sort(key=lambda found: (found[1].first % step, found[1].first))
            yield from pairwise(parts)
    counts = [[len(parts) for parts in steps.values()] for steps in alike.values()]
    if sum(sum(some) ** 2 - sum(count**2 for count in some) for some in counts) > 2 * _MOST_PAIRS:
        raise SelectionError(f"parts in different steps are more than {_MOST_PAIRS:,} pairs, too many to compare")
    for steps in alike.values():
        for one, other in combinations(steps.values(), 2):
            yield from product(one, other)


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
