"""A checkpoint is opened, with a bar that moves and a warning for numbers that are none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import torch

from ...convert.files.architecture import Architecture
from ...convert.files.checkpoint import size_on_disk
from ...convert.files.network import Network, open_network
from ..terminal.names import listed
from ..terminal.output import progress, say


def open_source(
    checkpoint: Path,
    *,
    architecture: Architecture | None,
    ema: bool,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> Network:
    """``open_network``, whose progress is seen, and whose warnings are said on stderr.

    Raises:
        ConversionError: As ``open_network``.
    """
    with (
        progress("Reading", total=size_on_disk(checkpoint)) as advance,
        redirect_stdout(sys.stderr),  # what the architecture's code prints is not the result
    ):
        network = open_network(
            checkpoint, architecture=architecture, ema=ema, device=device, dtype=dtype, progress=advance
        )
    _warn_non_finite(network.non_finite)
    return network


def _warn_non_finite(names: Sequence[str]) -> None:
    if names:
        say(f"warning: NaN or infinity in {listed(names)}; these layers are not certified", err=True)
