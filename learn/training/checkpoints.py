"""The epochs that a run keeps as files: the last one, to continue from, and the best one, to be used."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from ...convert.errors import CheckpointError
from ...convert.files.tensors import write_stream
from ...convert.files.write import write_file

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
