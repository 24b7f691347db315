"""The machine's part of Lightning's ``Trainer``: accelerator, processes, strategy and precision."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.warnings import PossibleUserWarning

from ...convert.errors import OptionError
from .recipe import Machine

_STARTS_PROCESSES = re.compile(r"^(ddp)_(?:spawn|fork|notebook)")
"""Names of strategies that start processes by themselves, which would outlive a run that is killed: ours do not."""


def make_trainer(machine: Machine, **options: Any) -> lightning.Trainer:
    """A trainer for this machine.

    Args:
        machine: What it is told of the machine.
        options: More arguments of ``Trainer``.

    Raises:
        OptionError: Lightning cannot train so here.
    """
    try:
        with quiet():
            return lightning.Trainer(
                accelerator=machine.accelerator,
                devices=machine.devices,
                strategy=_STARTS_PROCESSES.sub(r"\1", machine.strategy),
                precision=machine.precision,  # type: ignore[arg-type]
                **options,
            )
    except (ValueError, TypeError, RuntimeError, ImportError, MisconfigurationException) as error:
        raise OptionError(f"Lightning cannot train so: {' '.join(str(error).split())}") from error


def processes_to_start(machine: Machine) -> int:
    """Number of processes to start for a training; 0 if this one is enough.

    Raises:
        OptionError: Lightning cannot train so here.
    """
    count = make_trainer(machine, logger=False, enable_checkpointing=False).num_devices
    return 0 if count == 1 else count


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's remarks on the machine, on workers that load, and on products of its makers."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
            warnings.filterwarnings("ignore", message="`isinstance.treespec, LeafSpec", category=FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
