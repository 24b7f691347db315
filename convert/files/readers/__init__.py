"""The kinds of checkpoint, and a reader for each: PyTorch's own, safetensors' and onnx's.

Data are read without asking. A program (a pickle of own classes, ``.pt2``) is run only where the caller
trusts it; ``docs/security.md`` says what that means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import CheckpointError, TrustNeededError, close_names
from ...onnx import read_onnx
from ...spec import DescribedConvolution
from .described import is_module, kinds_of, pickled_network
from .program import check_float, run_program
from .quantised import quantised_classes
from .sniff import Kind, describe, read_index, sniff, weights_file
from .torch import read_torch

_MAX_DEPTH = 8  # containers in containers, in which modules are sought
_FORMATS = ("format", "conv2attn")  # names in the metadata of safetensors that say how a file was written


@dataclass(frozen=True)
class Contents:
    """Contents of a checkpoint.

    Attributes:
        value: Tensors, modules and stand-ins for unknown objects, in containers.
        files: Every file that was read.
        convolutions: Convolutions whose geometry the file describes beside it, by the names of their layers.
        sha256: SHA-256 in hexadecimal: of the whole file, or of the sums and names of several, one a line.
    """

    value: object
    files: tuple[Path, ...]
    convolutions: Mapping[str, DescribedConvolution] = field(default_factory=dict)
    sha256: str = ""


def read_contents(path: Path, *, trust: bool = False) -> Contents:
    """Reads the contents of a file, or of a folder as Hugging Face writes it.

    Raises:
        CheckpointError: It is of no supported kind, or damaged.
        TrustNeededError: It is a program, and not trusted.
    """
    if path.is_dir():
        path = weights_file(path)
    elif not path.is_file():
        raise CheckpointError(f"there is no file {path}{_elsewhere(path)}")
    try:
        found = _read(path, trust=trust)
        return replace(found, sha256=_digest(found.files))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path, *, trust: bool) -> Contents:
    match kind := sniff(path):
        case None:
            raise CheckpointError(f"{path} is no checkpoint of a supported kind: it is {describe(path)}")
        case Kind.SAFETENSORS:
            return Contents(_read_safetensors(path), (path,))
        case Kind.TORCH | Kind.LEGACY:
            return Contents(_read_torch(path, kind, trust=trust), (path,))
        case Kind.INDEX:
            return Contents(*read_index(path, lambda file: _part(file, trust=trust)))
        case Kind.ONNX:
            return Contents(*read_onnx(path))
        case Kind.SCRIPT:
            raise CheckpointError(
                f"{path} is {kind.value}, whose layers are compiled, frozen or not: torch.export the network that it "
                "was made from, or save its state dict"
            )
    if kind is Kind.PROGRAM:
        check_float(path)
    if trust:
        return Contents(run_program(path, kind), (path,))
    risk = "which is code, and reading it may run it"
    if kind is Kind.PICKLE:
        risk = "and reading it runs what it says; torch.save(state_dict, FILE) writes data"
    raise TrustNeededError(f"{path} is {kind.value}, {risk}")


def _elsewhere(path: Path) -> str:
    """A hint at where a missing file may be, as the end of a sentence."""
    if str(path).startswith("hf:"):
        folder = Path(str(path).removeprefix("hf:"))
        return f"; a folder is named without hf:, {folder}" if folder.is_dir() else _elsewhere(folder)
    if path.parent.is_dir():
        return close_names(path.name, (each.name for each in path.parent.iterdir()))
    return f"; nothing is downloaded: hf download {path} gives a folder" if len(path.parts) == 2 else ""


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, over the mapped file.

    A tensor that is one with another has no numbers of its own: as ``safetensors.torch.save_model`` writes it, its name
    stands in the metadata, with the name of the other.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete: {error}") from error
    others = {name: kept for name, kept in metadata.items() if name not in _FORMATS and name not in tensors}
    return tensors | {name: tensors[kept] for name, kept in others.items() if kept in tensors}


def _read_torch(path: Path, kind: Kind, *, trust: bool) -> object:
    """A file of torch.save's as data, or as objects of the classes that it names."""
    try:
        data = read_torch(path)
    except TrustNeededError:
        if not trust:
            raise
        return run_program(path, kind)
    return run_program(path, kind) if trust and _holds_foreign_modules(data) else data


def _holds_foreign_modules(value: object, depth: int = 0) -> bool:
    """Whether a module of a class that is not known, and is not refused as quantised, is somewhere in a file's data."""
    if is_module(value):
        return bool(pickled_network(value)[1]) and not quantised_classes(kinds_of(value))
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return depth < _MAX_DEPTH and any(_holds_foreign_modules(each, depth + 1) for each in values)


def _part(path: Path, *, trust: bool) -> Mapping[str, object]:
    """The tensors of one of several files."""
    if sniff(path) is Kind.INDEX:
        raise CheckpointError(f"{path} is an index, listed in another")
    value = _read(path, trust=trust).value
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no named tensors")
    return value


def _digest(files: Sequence[Path]) -> str:
    sums = {}
    for path in files:
        with path.open("rb") as file:
            sums[path] = hashlib.file_digest(file, "sha256").hexdigest()
    lines = sorted(f"{path.name} {sum_}\n" for path, sum_ in sums.items())
    return sums[files[0]] if len(files) == 1 else hashlib.sha256("".join(lines).encode()).hexdigest()
