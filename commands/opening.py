"""Opens the network that a command is about."""

from __future__ import annotations

import sys
from pathlib import Path

from torch import nn

from ..convert.files.open import Network, open_network
from ..convert.files.opening import Opening
from ..show.text import partial_lines
from .terminal import say


def opened(path: Path, opening: Opening | None = None) -> Network:
    """As ``open_network``; says first, on standard error, if the network takes a part of its checkpoint only."""
    network = open_network(path, opening)
    saved = network.checkpoint
    say(*partial_lines(path, len(saved.state_dict), saved.left_over), err=True)
    return network


def options_to_open(network: Network) -> list[str]:
    """The options with which a command opens the folder that was written of a network."""
    if network.architecture is None:  # a pickled network or a program, which the folder does not hold
        return ["--arch", _class_of(network.read)]
    return ["--trust"] if network.architecture.needs_trust else []


def _class_of(network: nn.Module) -> str:
    """FILE.py:NAME of a network, where its class is in a file of the caller's; else how that is written."""
    kind = type(network)
    path = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "FILE.py")
    is_own = path.is_file() and path.resolve().is_relative_to(Path.cwd())
    return f"{path.resolve().relative_to(Path.cwd())}:{kind.__qualname__}" if is_own else "FILE.py:NAME"
