"""``conv2attn soak`` checks random layers, in shards if asked; ``conv2attn sum-soaks`` adds up their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..proofs.campaign.results import Campaign, Settings, Shard, merge
from ..proofs.campaign.run import DEFAULT_LAYERS, ENDLESS, run_campaign
from .terminal import progress, result_file


def soak_layers(
    settings: Settings,
    layers: int | None,
    *,
    seed: int,
    minutes: float | None = None,
    shard: str | None = None,
    out: Path | None = None,
    name: str = "soak",
) -> Campaign:
    """Checks the random layers of a seed, or of a shard of them.

    Args:
        settings: What is checked.
        layers: Number of layers; None means as many as ``minutes`` allows, or ``DEFAULT_LAYERS``.
        seed: Seed for the layers.
        minutes: No new layer is started after this time.
        shard: The shard, as I/N; None means that of RANK and WORLD_SIZE, if these are set.
        out: File for the result as JSON; {shard} in its name stands for the shard.
        name: The command that the result names.

    Raises:
        SelectionError: There is no such shard.
        OutputError: The file cannot be written.
    """
    part = Shard.parse(shard)
    own = out if out is None or (shard is not None and "{shard}" not in out.name) else part.own_file(out)
    count = layers or (DEFAULT_LAYERS if minutes is None else ENDLESS)
    with result_file(own, name) as write:
        with progress("Checking layers", total=len(part.indices(count))) as advance:
            found = run_campaign(settings, layers=count, seed=seed, shard=part, minutes=minutes, progress=advance)
        write(found)
    return found


def merge_results(files: Sequence[Path], *, out: Path | None = None) -> Campaign:
    """Adds up results of ``soak_layers``, and writes the sum to a file where one is given."""
    with result_file(out, "soak", sources=files) as write:
        found = merge(files)
        write(found)
    return found
