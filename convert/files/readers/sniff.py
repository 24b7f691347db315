"""Where a folder has its weights, as Hugging Face's libraries write it, and the kind of a file by its first bytes.

Raises:
    CheckpointError: By the functions here, for a folder without weights or with several, and for a wrong index.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from ...errors import CheckpointError, listed
from ...plain import path_in, read_json


class Kind(Enum):
    """Supported kinds of file."""

    SAFETENSORS = "safetensors"
    TORCH = "a file of torch.save"
    LEGACY = "a file of torch.save before PyTorch 1.6"
    PICKLE = "a pickle that pickle.dump wrote, not torch.save"
    SCRIPT = "a TorchScript program"
    PROGRAM = "a program of torch.export"
    INDEX = "an index of several files"
    ONNX = "an ONNX model"


_LEGACY = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch.save's number, pickled
_OTHERS = (  # where these bytes stand, and what begins like this
    (0, b"GGUF", "a GGUF file, which holds quantised language models"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes; export the network to ONNX (tf2onnx does)"),
    (4, b"TFL3", "a TensorFlow Lite file; export the network to ONNX (tf2onnx does)"),
    (0, b"\x93NUMPY", "a NumPy array; put the arrays into a dict of tensors by their names, for torch.save"),
    (0, b"\x1f\x8b", "compressed by gzip; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
)
_STEMS = ("model", "diffusion_pytorch_model", "pytorch_model")
_USUAL = tuple(
    f"{stem}.{kind}{index}" for stem in _STEMS for kind in ("safetensors", "bin") for index in ("", ".index.json")
)
_SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".onnx", ".pt2")
_ZERO = re.compile(r"(bf16_)?zero_pp_rank_\d+_mp_rank_\d+_(model|optim)_states\.pt$")  # DeepSpeed's shards
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")
_ZERO_ADVICE = "the zero_to_fp32.py that DeepSpeed writes beside it makes one file: python zero_to_fp32.py FOLDER OUT"
_WHOLE = "mp_rank_00_model_states.pt"  # DeepSpeed's file of all weights, which ZeRO-3 alone does not write
_TRAINING = re.compile(r"(optimizer|scheduler|training_args|rng_state|scaler|random_states)")


def sniff(path: Path) -> Kind | None:
    """The kind of a file, or None if it is not supported.

    Raises:
        CheckpointError: It is one shard of a distributed checkpoint.
    """
    if path.suffix == ".distcp":
        raise CheckpointError(f"{path} is one shard of a checkpoint of torch.distributed; {_merging(path.parent)}")
    if _ZERO.search(path.name):
        raise CheckpointError(f"{path} is one shard of a checkpoint of DeepSpeed's ZeRO; {_ZERO_ADVICE}")
    head = _head(path)
    if head[4:9] == b"\0\0\0\0{":  # a header's length below 4 GiB, and JSON; the length can look like a pickle
        return Kind.SAFETENSORS
    if head.startswith(b"PK\3\4"):
        return _archive_kind(path)
    if len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL:
        return Kind.LEGACY if head[2:].startswith(_LEGACY) else Kind.PICKLE
    if head.lstrip().startswith(b"{"):
        return Kind.INDEX
    if re.match(rb"\x08[\x01-\x20][\x12\x1a\x22\x28\x32\x3a\x42]", head):  # ir_version, then another field
        return Kind.ONNX
    return None


def describe(path: Path) -> str:
    """The apparent kind of a file that is no checkpoint, with advice, as the end of a sentence."""
    head = _head(path)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head:
        return "empty"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer; git lfs pull fetches the file that it stands for"
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if head.startswith(b"PK"):
        whole = "a zip archive that PyTorch did not write; unpack it first"
        return whole if _names(path) else "damaged, a zip archive without its end"
    found = next((what for place, mark, what in _OTHERS if head[place:].startswith(mark)), None)
    if found is not None:
        return found
    return "a file of an unknown kind" if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", head) else "a text file"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(512)  # enough to tell the kinds apart, and an HTML page or a text from them


def _archive_kind(path: Path) -> Kind | None:
    """The kind of a zip archive; PyTorch puts everything into one folder of any name."""
    found = _names(path)
    names = {name.partition("/")[2] for name in found}
    if "constants.pkl" in names:
        return Kind.SCRIPT
    if "data.pkl" in names:
        return Kind.TORCH
    is_program = any(name.startswith("models/") for name in names) or "serialized_exported_program.json" in found
    return Kind.PROGRAM if is_program else None


def _names(path: Path) -> list[str]:
    """Names of the entries of a zip archive; none if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, UnicodeDecodeError):
        return []


def weights_file(folder: Path) -> Path:
    """The file in a folder that holds its weights, or lists the files that do."""
    if any(_ZERO.search(place.name) for place in folder.glob("*.pt")) and not (folder / _WHOLE).exists():
        raise CheckpointError(f"{folder} is a checkpoint of DeepSpeed's ZeRO in shards; {_ZERO_ADVICE}")
    usual = next((name for name in _USUAL if (folder / name).exists()), None)
    if usual is not None:
        return path_in(folder, usual)
    found = _candidates(folder)
    if len(found) == 1:
        return path_in(folder, found[0])
    if found:
        raise CheckpointError(f"{folder} holds weights in {listed(found)}; open one of these files")
    if (folder / ".metadata").exists():
        raise CheckpointError(f"{folder} is a checkpoint of torch.distributed; {_merging(folder)}")
    if (folder / "zero_to_fp32.py").exists():
        raise CheckpointError(f"{folder} is a checkpoint of DeepSpeed; {_ZERO_ADVICE}")
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


def _merging(folder: Path) -> str:
    """The command that makes one file of a checkpoint of torch.distributed, as the end of a sentence."""
    command = f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {folder} FILE.pth"
    return f"{command} makes one file of it"


def _candidates(folder: Path) -> list[str]:
    """Files of weights by their names: indices instead of the files that they list."""
    names = sorted(place.name for place in folder.iterdir() if place.is_file())
    indices = [name for name in names if ".index." in name and name.endswith(".json")]
    weights = [name for name in names if name.endswith(_SUFFIXES) and not (_TRAINING.match(name) or _ZERO.search(name))]
    return indices + [name for name in weights if not (indices and _SHARD.search(name))]
