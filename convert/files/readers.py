"""The kinds of checkpoint (PyTorch's, safetensors', ONNX's): how each is recognised, and its reader.

A kind is known by a file's first bytes; a folder's weights are found where Hugging Face's libraries write them.
Quantised weights, which are not read, are known by the names that files have for keys, classes and operations.

Data are read without asking. A program (a pickle of own classes, ``.pt2``), which PyTorch can only read by running its
code, is run only where the caller trusts it; ``docs/security.md`` says what that means.

Raises:
    CheckpointError: By the functions here, for a file that is damaged or needs a package that is not installed, a
        folder without weights or with several, and a wrong index.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, fx, nn

from ..errors import CheckpointError, TrustNeededError, close_names, first_line, listed
from ..network.calls import calls_as_modules, calls_of_integers
from ..onnx import read_onnx
from ..plain import path_in, read_json
from ..spec import DescribedConvolution
from .pickles import inert_kinds, is_module, is_utf8, kinds_of, load_torch, pickled_network, read_torch
from .state import is_extra_state


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
    *((0, mark, "a picture") for mark in (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")),
    (0, b"\x1f\x8b", "compressed by gzip; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
)
_PACKAGE = ".data/extern_modules"
_ARCHIVES = (  # names of entries of zip archives, and what has them
    (
        rf"{re.escape(_PACKAGE)}$",
        "a package of torch.package, which holds code and is read by running it: in Python, "
        'torch.package.PackageImporter(FILE).load_pickle("model", "model.pkl"), or the names under which it was made, '
        "gives the network, whose state dict torch.save writes",
    ),
    (r"(^|/)data/aotinductor/", "a network that AOTInductor compiled to machine code; keep the .pt2 of torch.export"),
    (r"^(?!.*/).*\.npy$", "NumPy arrays (.npz); put them into a dict of tensors by their names, for torch.save"),
    (r"(^|/)model\.weights\.h5$", "a network of Keras; export it to ONNX (tf2onnx does)"),
    (r"^MAR-INF/", "an archive of TorchServe; unpack it, and open the file of weights in it"),
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
        names = _names(path)
        return _archive(names) if names else "damaged, a zip archive without its end"
    found = next((what for place, mark, what in _OTHERS if head[place:].startswith(mark)), None)
    if found is not None:
        return found
    return "a file of an unknown kind" if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", head) else "a text file"


def _archive(names: Sequence[str]) -> str:
    """The apparent kind of a zip archive that is no checkpoint, with advice, as the end of a sentence."""
    for mark, what in _ARCHIVES:
        if any(re.search(mark, name) for name in names):
            return what
    if inner := [name for name in names if name.endswith((*_SUFFIXES, ".npz", ".npy"))]:
        return f"a zip archive that holds {listed(inner)}; unpack it first"
    return "a zip archive that PyTorch did not write; unpack it first"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(512)  # enough to tell the kinds apart, and an HTML page or a text from them


def _archive_kind(path: Path) -> Kind | None:
    """The kind of a zip archive; PyTorch puts everything into one folder of any name."""
    found = _names(path)
    names = {name.partition("/")[2] for name in found}
    if _PACKAGE in names:  # which can hold files of any names
        return None
    if "constants.pkl" in names:
        return Kind.SCRIPT
    if "data.pkl" in names:
        return Kind.TORCH
    is_program = any(name.startswith("models/") for name in names) or "serialized_exported_program.json" in found
    return Kind.PROGRAM if is_program else None


def _names(path: Path) -> list[str]:
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


_KEY = re.compile(
    r"(^|\.)(qweight|qzeros|SCB|zero_point|weight_scale(_inv)?|weight_zero_point|_packed_params(\..*)?"
    r"|weight\.(absmax|quant_map|nested_absmax|quant_state\..*))$"
)  # what PyTorch, bitsandbytes, GPTQ and others keep beside integers
_CLASS = re.compile(r"(torch\.(ao\.)?nn\.(\w+\.)*quantized\.|bitsandbytes\.|torchao\.)(?!.*FloatFunctional$)")
_OPERATION = re.compile(r"torch\.ops\.((?:quantized\w*|torchao)\.\w+)")

FLOAT_STATE = "save the float network's state dict, or dequantise it first"
FLOAT_EXPORT = "export the float network"


def quantised_keys(keys: Iterable[str]) -> list[str]:
    """Keys of a state dict that only quantised weights have."""
    return [key for key in keys if _KEY.search(key)]


def quantised_classes(kinds: Iterable[str]) -> list[str]:
    """Classes, by qualified names, that hold quantised weights; ``FloatFunctional`` lies among them and holds none."""
    return [kind for kind in kinds if _CLASS.match(kind)]


def quantised_operations(text: str) -> list[str]:
    """Operations on quantised numbers that a program names, each once."""
    return list(dict.fromkeys(_OPERATION.findall(text)))


def quantised(path: Path, advice: str, signs: Sequence[str]) -> CheckpointError:
    """The refusal of a file with quantised weights, by the signs that tell."""
    return CheckpointError(f"{path} holds quantised weights, which are not read: {advice} ({listed(signs, '; ')})")


def check_float(path: Path) -> None:
    """Refuses a program of torch.export whose operations are on quantised numbers, by its text; nothing is run."""
    text = ""
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:  # torch's reader tells that one is damaged
        names = [name for name in archive.namelist() if name.endswith(".json")]
        text = " ".join(archive.read(name).decode(errors="replace") for name in names)
    if signs := quantised_operations(text):
        raise quantised(path, FLOAT_EXPORT, signs)


def run_program(path: Path, kind: Kind) -> object:
    """Reads a file by torch's or Python's own reader, which runs what the file says.

    Returns:
        A network, with its convolutions as modules; for a pickle, its contents.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its internals
            if kind is Kind.PROGRAM:
                with path.open("rb") as file:  # whose name need not be UTF-8
                    return _as_network(torch.export.load(file).module(), path)
            if kind is Kind.PICKLE:
                with path.open("rb") as file:
                    return pickle.load(file)
            return load_torch(path, weights_only=False)
    except ModuleNotFoundError as error:
        needed = f"{path} needs the module {error.name}, which cannot be imported here"
        raise CheckpointError(f"{needed}; the environment variable PYTHONPATH must hold its folder") from error
    except (ImportError, AttributeError) as error:
        raise CheckpointError(f"{path} needs code that cannot be imported here ({first_line(error)})") from error
    except CheckpointError:
        raise
    except Exception as error:  # whatever the file's code raises
        raise CheckpointError(f"{path} cannot be run: {first_line(error)[:300]}") from error


def _as_network(graph: fx.GraphModule, path: Path) -> nn.Module:
    """A graph of torch.export's with modules for its convolutions; it has a mode like any module."""
    if signs := calls_of_integers(graph):
        raise quantised(path, FLOAT_EXPORT, signs)
    for name in ("train", "eval"):  # these refuse; the graph's own operations say in which mode they are
        graph.__dict__.pop(name, None)
    return calls_as_modules(graph).model


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
    path = _file_of(path)
    with readable(path):
        found = _read(path, trust=trust)
        return replace(found, sha256=digest(found.files))


def kind_of(path: Path) -> Kind:
    """The kind of a file, or of the one with the weights in a folder, of which only the beginning is read.

    Raises:
        CheckpointError: There is none, it cannot be read, or it is of no supported kind.
    """
    path = _file_of(path)
    with readable(path):
        return _known(path)


def _file_of(path: Path) -> Path:
    """The file itself, or the one with the weights in a folder."""
    if path.is_dir():
        return weights_file(path)
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}{_elsewhere(path)}")
    return path


def _known(path: Path) -> Kind:
    kind = sniff(path)
    if kind is None:
        raise CheckpointError(f"{path} is no checkpoint of a supported kind: it is {describe(path)}")
    return kind


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Says of a file that the system does not give, such as one without permission, that it cannot be read.

    Raises:
        CheckpointError: Within, for an OSError.
    """
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path, *, trust: bool) -> Contents:
    match kind := _known(path):
        case Kind.SAFETENSORS:
            return Contents(read_safetensors(path), (path,))
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


_NAMES = ("timm:", "torchvision.models:", "transformers:")


def _elsewhere(path: Path) -> str:
    if str(path).startswith("hf:"):
        folder = Path(str(path).removeprefix("hf:"))
        return f"; a folder is named without hf:, {folder}" if folder.is_dir() else _elsewhere(folder)
    if str(path).startswith(_NAMES):
        return f"; {path} names an architecture, which goes with a file of its weights"
    if path.parent.is_dir():
        return close_names(path.name, (each.name for each in path.parent.iterdir()))
    return f"; nothing is downloaded: hf download {path} gives a folder" if len(path.parts) == 2 else ""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, over the mapped file.

    A tensor that is one with another has no numbers of its own: as ``safetensors.torch.save_model`` writes it, its name
    stands in the metadata, with the name of the other.

    Raises:
        CheckpointError: The file is damaged.
    """
    try:
        with _reachable(path) as place, safe_open(place, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or incomplete: {error}") from error
    others = {name: kept for name, kept in metadata.items() if name not in _FORMATS and name not in tensors}
    return tensors | {name: tensors[kept] for name, kept in others.items() if kept in tensors}


@contextmanager
def _reachable(path: Path) -> Iterator[Path]:
    """The path of a file for a library that takes UTF-8 alone: a link to it where its name is something else."""
    if is_utf8(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        (link := Path(folder, "file")).symlink_to(path.absolute())
        yield link


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
    """Whether code is needed for a file's data: for a module or extra state of a class that is not known.

    A module that is refused as quantised needs none.
    """
    if is_module(value):
        return bool(pickled_network(value)[1]) and not quantised_classes(kinds_of(value))
    if isinstance(value, dict) and any(inert_kinds(each) for key, each in value.items() if is_extra_state(str(key))):
        return True
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return depth < _MAX_DEPTH and any(_holds_foreign_modules(each, depth + 1) for each in values)


def _part(path: Path, *, trust: bool) -> Mapping[str, object]:
    if sniff(path) is Kind.INDEX:
        raise CheckpointError(f"{path} is an index, listed in another")
    value = _read(path, trust=trust).value
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no named tensors")
    return value


def digest(files: Sequence[Path]) -> str:
    """SHA-256 in hexadecimal: of one file, or of the sums and names of several, one a line."""
    sums = {}
    for path in files:
        with path.open("rb") as file:
            sums[path] = hashlib.file_digest(file, "sha256").hexdigest()
    lines = sorted(f"{path.name} {sum_}\n" for path, sum_ in sums.items())
    return sums[files[0]] if len(files) == 1 else hashlib.sha256("".join(lines).encode()).hexdigest()
