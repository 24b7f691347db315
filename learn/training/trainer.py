"""Settings of Lightning's trainer: the machine, and the epochs that a run keeps as files.

These are the last epoch, to continue from, and the best one, to be used.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from ...convert.errors import CheckpointError, OptionError
from ...convert.files.tensors import write_stream
from ...convert.files.write import write_file
from .recipe import Machine

_STARTS_PROCESSES = re.compile(r"^(ddp)_(?:spawn|fork|notebook)")
"""Names of strategies that start processes by themselves, which would outlive a run that is killed: ours do not."""


def make_trainer(machine: Machine, **options: Any) -> lightning.Trainer:
    """A trainer for this machine, with more options of ``Trainer``.

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


LAST, BEST = "last.ckpt", "best.ckpt"
STATE, RECORDS_KEY = "state_dict", "records"
PREFIX = "network."  # precedes the network's own keys in the state of Lightning's module
_KEYS = {STATE, RECORDS_KEY, "epoch", "optimizer_states", "lr_schedulers", "loops", "pytorch-lightning_version"}


class AtomicFiles(TorchCheckpointIO):
    """Writes a checkpoint so that a killed run leaves the old one or the new one; reads tensors and plain data only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes one, by Lightning's name."""
        write_file(Path(path), partial(write_stream, partial(torch.save, checkpoint)), force=True)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Reads one, by Lightning's name."""
        state: dict[str, Any] = _read(Path(path))
        return state


class Kept(ModelCheckpoint):
    """Knows its best epoch again also in a folder that was moved since."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the paths of a killed run as they are now."""

        def moved(path: str) -> str:
            return str(Path(str(self.dirpath), Path(path).name)) if path else ""

        paths = {
            name: moved(state_dict[name]) for name in ("best_model_path", "kth_best_model_path", "last_model_path")
        }
        best = {moved(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **paths, "best_k_models": best, "dirpath": self.dirpath})


def read_epoch(path: Path) -> dict[str, Any]:
    """Reads a run's checkpoint of an epoch.

    Raises:
        CheckpointError: The file cannot be read, or holds something else.
    """
    state = _read(path)
    if not isinstance(state, dict) or not state.keys() >= _KEYS:
        raise CheckpointError(f"{path} is no checkpoint of a run")
    return state


def _read(path: Path) -> Any:
    """Tensors and plain data, on the CPU."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # torch's reader may raise anything for a damaged file
        raise CheckpointError(f"{path} is damaged, or no checkpoint of a run") from error
