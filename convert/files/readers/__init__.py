"""The kinds of checkpoint, and one reader for each.

A reader gives plain data with ``StoredTensor``s in it, and the convolutions whose geometry the file describes. No
reader runs, imports or calls anything that a file names, expands anything, or allocates what a file only declares;
``docs/security.md`` says what is promised, and how it is tested. Another kind is another reader here.

Raises:
    CheckpointError: By ``read_contents``, for everything that is not an intact checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from ...errors import CheckpointError, ToolError
from .archive import open_archive
from .common.beside import Beside, path_in
from .common.geometry import StoredConvolution
from .common.limits import MAX_HEADER, Budget, parse_json
from .common.made import made
from .common.stored import Source
from .exported import MODEL, read_exported
from .onnx import read_onnx
from .pickled import DATA, read_archive, read_legacy
from .safetensors import read_safetensors
from .sniff import HEAD_BYTES, Kind, describe, sniff

FOLDER_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""The files that hold the weights in a Hugging Face folder, the first of them first."""


@dataclass(frozen=True)
class Contents:
    """What a checkpoint holds.

    Attributes:
        value: A mapping of names to tensors, or containers with one inside.
        convolutions: Convolutions whose geometry the file describes, by the names of their layers.
        files: Every file that was read.
        metadata: Texts that a safetensors file carries.
        budget: What reading may still take.
    """

    value: object
    convolutions: Mapping[str, StoredConvolution] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)


def read_contents(path: Path, budget: Budget | None = None) -> Contents:
    """Reads what a file, or a folder as Hugging Face writes it, holds.

    Args:
        path: The file or folder.
        budget: What reading the checkpoint that it belongs to may still take; by default it is all of one.

    Raises:
        CheckpointError: It is of none of the kinds, or damaged, or declares what is not read.
        OSError: The file system failed.
    """
    if path.is_dir():
        path = _file_of(path)
    elif not path.is_file():
        raise CheckpointError(f"there is no file {path}")
    source = Source(path, budget)
    return replace(_read(source), budget=source.budget)


def _read(source: Source) -> Contents:
    """What an opened file, and those that it names, hold."""
    path, head = source.path, source.bytes(0, min(HEAD_BYTES, source.size))
    kind = sniff(head)
    if kind is None:
        raise CheckpointError(f"{path} is {describe(head)}, not a checkpoint of a kind that is read")
    try:
        return _READERS[kind](source)
    except OSError:
        raise
    except ToolError:
        raise
    except CheckpointError as error:
        raise located(error, path) from error
    except Exception as error:  # a damaged file makes the readers raise anything
        name = type(error).__name__
        raise CheckpointError(f"{path} is damaged, incomplete or no checkpoint ({name} while reading it)") from error


def located(error: CheckpointError, path: Path) -> CheckpointError:
    """An error that says where it was met."""
    return error if str(path) in str(error) else CheckpointError(f"{path}: {error}")


def _file_of(folder: Path) -> Path:
    """The file in a folder that its weights are in, or listed in."""
    name = next((name for name in FOLDER_FILES if (folder / name).exists()), None)
    if name is not None:
        return path_in(folder, name)
    if (folder / ".metadata").exists():
        raise CheckpointError(
            f"{folder} is a distributed checkpoint; python -m torch.distributed.checkpoint.format_utils dcp_to_torch "
            "makes a file of it"
        )
    raise CheckpointError(f"{folder} is a folder without weights, sought in {FOLDER_FILES[0]} and files like it")


def _read_safetensors(source: Source) -> Contents:
    tensors, metadata = read_safetensors(source)
    return Contents(tensors, files=(source.path,), metadata=metadata)


def _read_zip(source: Source) -> Contents:
    archive = open_archive(source)
    program, pickle = archive.root(MODEL), archive.root(DATA)
    if program is not None and pickle is not None:
        raise CheckpointError(f"{source.path} holds both {DATA} and {MODEL}, of which PyTorch may read either")
    if program is not None:
        tensors, convolutions = read_exported(archive, program)
        return Contents(tensors, convolutions, (source.path,))
    if pickle is not None:
        return Contents(read_archive(archive, pickle), files=(source.path,))
    raise CheckpointError(f"{source.path} is a zip archive that PyTorch did not write")


def _read_pickle(source: Source) -> Contents:
    return Contents(read_legacy(source), files=(source.path,))


def _read_onnx(source: Source) -> Contents:
    """Tensors of an ONNX model as those of a file; once readers give plain tensors, ``read_onnx`` takes its place."""
    tensors, layers, files = read_onnx(source.path)
    for file in files[1:]:
        source.budget.add_file(file.stat().st_size)
    found = {
        name: made(source, tensor.dtype, tuple(tensor.shape), partial(_same, tensor))
        for name, tensor in tensors.items()
    }
    return Contents(found, {name: StoredConvolution(**vars(layer)) for name, layer in layers.items()}, files)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _read_index(source: Source) -> Contents:
    """Reads the files that an index lists, and takes from each the tensors that the index says are in it."""
    index = parse_json(source.bytes(0, min(source.size, MAX_HEADER + 1)), str(source.path), source.budget)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{source.path} is JSON, but no index of a checkpoint in several files")
    beside = Beside(source)
    found = {name: beside.open(name) for name in sorted(set(places.values()))}
    parts = {file: _part(file) for file in beside.opened}
    lacking = [key for key, name in places.items() if key not in _tensors(parts[found[name]])]
    if lacking:
        raise CheckpointError(
            f"{source.path} says that {places[lacking[0]]} holds {lacking[0][:100]!r}, which it lacks"
        )
    tensors = {key: _tensors(parts[found[name]])[key] for key, name in places.items()}
    files = [path for part in parts.values() for path in part.files]
    return Contents(tensors, files=(source.path, *dict.fromkeys(files)))


def _part(source: Source) -> Contents:
    """Contents of one of several files; refuses another index, and a file without named tensors."""
    if sniff(source.bytes(0, min(HEAD_BYTES, source.size))) is Kind.INDEX:
        raise CheckpointError(f"{source.path} is an index, listed in another")
    contents = _read(source)
    if not isinstance(contents.value, dict):
        raise CheckpointError(f"{source.path} holds no named tensors")
    return contents


def _tensors(part: Contents) -> dict[object, object]:
    return part.value if isinstance(part.value, dict) else {}


_READERS: dict[Kind, Callable[[Source], Contents]] = {
    Kind.SAFETENSORS: _read_safetensors,
    Kind.ZIP: _read_zip,
    Kind.PICKLE: _read_pickle,
    Kind.INDEX: _read_index,
    Kind.ONNX: _read_onnx,
}
