"""What an engine's port gives: a network in that engine, as a callable of the network's own inputs.

Where the network gives several tensors, the callable gives as many, in their order.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

Call = Callable[[Tensor], Tensor]
Calls = Callable[[Tensor], tuple[Tensor, ...]]
NAMES = tuple(sorted(path.stem for path in (Path(__file__).parent / "ports").glob("[!_]*.py")))


class CannotRunError(Exception):
    """An engine cannot run a network in a configuration; the message says why."""


def module(name: str) -> ModuleType:
    """A port's module: PACKAGE, VERSION, DECLARED (units by configuration) and ``port``.

    Raises:
        ImportError: The engine is not installed.
    """
    return importlib.import_module(f"benchmarks.engines.ports.{name}")


def ported(name: str, network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """A network in an engine.

    Args:
        name: The engine's.
        network: The network; its weights are copied.
        inputs: Of it, whose shapes the engine may keep to.
        way: The engine's configuration.
        folder: For files.

    Raises:
        CannotRunError: It cannot be converted or run.
    """
    try:
        call: Calls = module(name).port(copy.deepcopy(network), inputs, way, folder)
        call(inputs)
    except CannotRunError:
        raise
    except Exception as error:  # engines raise errors of any kind
        said = next(iter(str(error).strip().splitlines()), "")
        raise CannotRunError(f"{type(error).__name__}: {said[:160]}") from error
    return call
