"""Weights in folders, and in several files: as Hugging Face's libraries write them.

Raises:
    CheckpointError: By both functions here, for a folder without weights or with several, and for a wrong index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import CheckpointError, listed
from ...plain import path_in, read_json

_STEMS = ("model", "diffusion_pytorch_model", "pytorch_model")
_USUAL = tuple(
    f"{stem}.{kind}{index}" for stem in _STEMS for kind in ("safetensors", "bin") for index in ("", ".index.json")
)
_SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".onnx", ".pt2")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")
_TRAINING = re.compile(r"(optimizer|scheduler|training_args|rng_state|scaler|random_states)")


def weights_file(folder: Path) -> Path:
    """The file in a folder that holds its weights, or lists the files that do."""
    usual = next((name for name in _USUAL if (folder / name).exists()), None)
    if usual is not None:
        return path_in(folder, usual)
    found = _candidates(folder)
    if len(found) == 1:
        return path_in(folder, found[0])
    if found:
        raise CheckpointError(f"{folder} holds weights in {listed(found)}; open one of these files")
    if (folder / ".metadata").exists():
        raise CheckpointError(
            f"{folder} is a checkpoint of torch.distributed; python -m torch.distributed.checkpoint.format_utils "
            f"dcp_to_torch {folder} FILE.pth makes one file of it"
        )
    if (folder / "saved_model.pb").exists():
        raise CheckpointError(f"{folder} is a SavedModel of TensorFlow; tf2onnx makes an ONNX file of it")
    inner = sorted(place.name for place in folder.iterdir() if place.is_dir() and _candidates(place))
    if inner:
        raise CheckpointError(f"{folder} holds networks in the folders {listed(inner)}; open {folder / inner[0]}")
    raise CheckpointError(f"{folder} is a folder without weights, sought in {_USUAL[0]} and files like it")


def read_index(path: Path, read: Callable[[Path], Mapping[str, object]]) -> tuple[dict[str, object], tuple[Path, ...]]:
    """The tensors that an index lists, each from the file that it names, read by ``read``; and all files."""
    index = read_json(path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not (isinstance(places, dict) and places and all(isinstance(name, str) for name in places.values())):
        raise CheckpointError(
            f"{path} is JSON, but no index of a checkpoint in several files; a folder is opened as a whole"
        )
    files = {name: path_in(path.parent, name) for name in dict.fromkeys(places.values())}
    parts = {name: read(file) for name, file in files.items()}
    lacking = [key for key, name in places.items() if key not in parts[name]]
    if lacking:
        raise CheckpointError(f"{path} says that {places[lacking[0]]} holds {lacking[0][:100]!r}, which it lacks")
    return {key: parts[name][key] for key, name in places.items()}, (path, *files.values())


def _candidates(folder: Path) -> list[str]:
    """Files of weights by their names: indices instead of the files that they list."""
    names = sorted(place.name for place in folder.iterdir() if place.is_file())
    indices = [name for name in names if ".index." in name and name.endswith(".json")]
    weights = [name for name in names if name.endswith(_SUFFIXES) and _TRAINING.match(name) is None]
    return indices + [name for name in weights if not (indices and _SHARD.search(name))]
