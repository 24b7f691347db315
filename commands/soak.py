"""``conv2attn soak`` checks random layers."""

from __future__ import annotations

from pathlib import Path

from ..proofs.campaign.results import Campaign, Settings
from ..proofs.campaign.run import DEFAULT_LAYERS, ENDLESS, run_campaign
from .terminal import progress, result_file


def soak_layers(
    settings: Settings,
    layers: int | None,
    *,
    seed: int,
    first: int = 0,
    minutes: float | None = None,
    out: Path | None = None,
    name: str = "soak",
) -> Campaign:
    """Checks the random layers of a seed. The arguments are the command's options; the result is that of ``name``."""
    count = layers or (DEFAULT_LAYERS if minutes is None else ENDLESS)
    with result_file(out, name) as write:
        with progress("Checking layers", total=count) as advance:
            found = run_campaign(settings, layers=count, first=first, seed=seed, minutes=minutes, progress=advance)
        write(found)
    return found
