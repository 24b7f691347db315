"""Weights from files: found in what a file holds, fitted to an architecture's keys, loaded all or nothing.

Raises:
    CheckpointError: By every function here but ``non_finite_keys``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import CheckpointError
from ..spec import ConvSpec
from .readers import Contents, located, read_contents
from .readers.common.geometry import StoredConvolution
from .readers.common.limits import MAX_NAME, MAX_OVERLAP, MAX_SHARING, MAX_TENSORS, SPARE, Budget
from .readers.common.stored import OddTensor, StoredTensor
from .readers.modules import flatten, is_module
from .readers.pickle_machine import StandIn

_PLACES = ("state_dict", "model")
_EMA_PLACES = ("state_dict_ema", "model_ema")
_EMA_COUNTER = "n_averaged"  # torch's AveragedModel keeps this buffer beside the averaged weights
_WRAPPERS = ("module.", "_orig_mod.", "model.")  # DistributedDataParallel, torch.compile, Lightning
_PARTIAL_WRAPPERS = ("module.", "_orig_mod.")  # may wrap a part of the network only
_COUNTER = "num_batches_tracked"  # batch normalisation had none before PyTorch 0.4.1
_LISTED = 10
_TENSOR = 500  # bytes that a tensor of torch takes besides its numbers
_MODULE, _MODULE_STEPS = 3500, 100  # bytes and steps that a module takes
_HEAD, _HEAD_STEPS = 250, 4  # bytes and steps that a head takes: its centre and its strength are numbers of Python
_MOST_WRAPPERS = 16  # prefixes of a name; nobody wraps a network so often
_PART = 2**22  # bytes that are hashed, or numbers that are looked at, at a time

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Checkpoint:
    """The weights of one checkpoint, under the names they have there.

    Attributes:
        path: The file or folder.
        state_dict: Plain tensors on the CPU, detached, over the mapped file; names as saved, wrapper prefixes included.
        sha256: SHA-256 in hexadecimal: of the whole file, or of the sums and names of several, one a line.
        convolutions: Convolutions whose geometry the checkpoint itself describes, by the names of their layers.
        metadata: Texts that a safetensors file carries.
        files: Every file that was read.
    """

    path: Path
    state_dict: dict[str, Tensor]
    sha256: str
    convolutions: Mapping[str, StoredConvolution] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


def read_checkpoint(
    path: str | Path, *, ema: bool = False, progress: Progress | None = None, budget: Budget | None = None
) -> Checkpoint:
    """Reads the weights of a checkpoint: a file or a folder of any kind in ``formats``.

    The weights may lie at the top level or under ``state_dict`` or ``model``, the first that holds tensors or a
    pickled network. Entries of a state dict that are not tensors (``_metadata``, extra state, an epoch) are left
    out: a strict load reports what it misses.

    Args:
        path: The file or folder; its name does not matter.
        ema: Take the moving average of the weights, under ``state_dict_ema`` or ``model_ema``.
        progress: Called with the number of bytes that were read since the last call.
        budget: What reading may still take, if the file is a part of something that is being read.

    Raises:
        CheckpointError: The file cannot be read, is of another kind, is damaged, holds no tensors (with ``ema``: no
            averaged ones), or a sparse, nested, quantized, packed or meta tensor, or one that does not fit in it.
    """
    path = Path(path)
    try:
        contents = read_contents(path, budget)
        found, convolutions = _find_weights(contents, path, ema=ema)
        weights = _weights(found, contents.budget, path)
        geometry = {**convolutions, **contents.convolutions}
        charge_modules(geometry, contents.budget)
        charge_heads((stored.spec for stored in geometry.values() if stored.spec is not None), contents.budget)
        sha256 = _digest(contents.files, progress)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except CheckpointError as error:
        raise located(error, path) from error
    return Checkpoint(path, weights, sha256, geometry, contents.metadata, contents.files)


def fit_keys(state_dict: Mapping[str, Tensor], expected_keys: Iterable[str]) -> dict[str, Tensor]:
    """Takes wrapper prefixes off the keys of a state dict until they are an architecture's keys.

    A prefix (``module.``, ``_orig_mod.``, ``model.``, in any order and number) goes when every key carries
    it; the first two also where only some keys do, but not from a key that the architecture has. At most sixteen
    go. Stripping stops as soon as every key is expected, so that a network's own child called ``model`` or ``module``
    stays. Keys that never all fit are returned at the stage where most of them do.

    Raises:
        CheckpointError: Two keys become the same one.
    """
    expected = set(expected_keys)
    names = {key: key for key in state_dict}  # as saved: as stripped
    best = names
    for _ in range(_MOST_WRAPPERS):
        stripped = names if expected.issuperset(names.values()) else _strip_once(names, expected)
        if stripped == names:
            break
        names = stripped
        best = max(best, names, key=lambda stage: len(expected.intersection(stage.values())))
    return {best[key]: tensor for key, tensor in state_dict.items()}


def load_into(model: nn.Module, checkpoint: Checkpoint, *, assign: bool = False) -> None:
    """Loads every weight of the checkpoint into the model, or none.

    Values are converted to the model's dtype and device; with ``assign``, to its dtype alone, and not copied if they
    have it. Only ``num_batches_tracked`` may be missing, as in
    files that are older than it; the model then keeps its own.

    Raises:
        CheckpointError: A key is missing or unexpected, a shape or a kind of dtype (floating, complex,
            integer, boolean) differs, tensors that are one in the model differ in the file, or the model is lazy or,
            without ``assign``, on the meta device; it is unchanged.
    """
    wanted = model.state_dict()
    weights = fit_keys(checkpoint.state_dict, wanted)
    missing = [key for key in wanted if key not in weights and key.rpartition(".")[2] != _COUNTER]
    problems = [f"{key!r} is missing" for key in missing]
    problems += [f"{key!r} is unexpected" for key in weights if key not in wanted]
    problems += [text for key in weights if key in wanted for text in _mismatch(key, weights[key], wanted[key], assign)]
    problems += _torn(model, weights)
    if problems:
        more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        listed = "; ".join(problems[:_LISTED])
        raise CheckpointError(f"{checkpoint.path} does not fit the architecture: {listed}{more}")
    if assign:
        weights = {key: weights[key].to(wanted[key].dtype) for key in weights}
    model.load_state_dict(weights, strict=False, assign=assign)  # all but the counters was checked above


def non_finite_keys(state_dict: Mapping[str, Tensor]) -> list[str]:
    """Names the tensors that hold a NaN or an infinity, in the state dict's order."""
    return [key for key, tensor in state_dict.items() if not _is_finite(tensor)]


def _is_finite(tensor: Tensor) -> bool:
    """Whether the smallest and the largest number are finite: one pass, and NaN is both."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return True
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    flat = numbers.reshape(-1)
    parts = (flat,) if len(flat) <= _PART else flat.split(_PART)  # a part at a time, since float8 is widened
    return all(math.isfinite(end.item()) for part in parts for end in torch.aminmax(_computable(part)))


def _computable(tensor: Tensor) -> Tensor:
    """Widens float8, which torch does not compare; any other dtype stays."""
    return tensor.float() if tensor.itemsize == 1 else tensor


def _find_weights(
    contents: Contents, path: Path, *, ema: bool
) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
    """The named tensors in what a file holds, and the convolutions among them if they lie in a pickled network."""
    loaded, places = contents.value, _EMA_PLACES if ema else _PLACES
    entries = loaded.entries if isinstance(loaded, StandIn) else loaded
    candidates = [entries.get(place) for place in places] if isinstance(entries, dict) else []
    if not ema:
        candidates.append(loaded)
    for candidate in candidates:
        if isinstance(candidate, StandIn) and is_module(candidate):
            weights, convolutions = flatten(candidate, contents.budget)
        else:
            weights, convolutions = _named_tensors(candidate), {}
        if ema:
            weights.pop(_EMA_COUNTER, None)
        if len(weights) > MAX_TENSORS:
            raise CheckpointError(f"{path} has {len(weights)} tensors; at most {MAX_TENSORS} are read")
        if weights:
            return weights, convolutions
    sought = " or ".join(places)
    if ema:
        raise CheckpointError(f"{path} holds no moving average of the weights, sought under {sought}")
    raise CheckpointError(f"{path} holds no named tensors, sought at the top level and under {sought}")


def _named_tensors(candidate: object) -> dict[str, object]:
    items = candidate.entries if isinstance(candidate, StandIn) else candidate
    if not isinstance(items, dict):
        return {}
    return {
        key: value
        for key, value in items.items()
        if isinstance(key, str) and isinstance(value, StoredTensor | OddTensor)
    }


def _weights(found: Mapping[str, object], budget: Budget, path: Path) -> dict[str, Tensor]:
    """The tensors under their names; those that are one in the file are one here."""
    described = {_name(key, path): _described(key, value, path) for key, value in found.items()}
    _check_overlap(described, budget, path)
    read: dict[StoredTensor, Tensor] = {}
    for tensor in described.values():
        if tensor not in read:
            budget.spend(memory=_TENSOR)
            read[tensor] = tensor.read()
    return {key: read[tensor] for key, tensor in described.items()}


def _check_overlap(described: Mapping[str, StoredTensor], budget: Budget, path: Path) -> None:
    """Refuses tensors that come to far more than the files hold, since their numbers are looked at, and written."""
    sizes = {tensor: tensor.numel * tensor.dtype.itemsize for tensor in described.values()}
    if sum(sizes.values()) > MAX_OVERLAP * budget.size + SPARE:
        raise CheckpointError(f"{path} is damaged: its tensors overlap, and come to far more bytes than it has")
    if sum(sizes[tensor] for tensor in described.values()) > MAX_SHARING * budget.size + SPARE:
        raise CheckpointError(f"{path} names its tensors more than {MAX_SHARING} times")


def charge_modules(names: Iterable[str], budget: Budget) -> None:
    """Charges the budget for a module for each of these names, and for each module that contains one."""
    known = {""}
    for name in names:
        place = name
        while place not in known:
            budget.spend(memory=_MODULE + len(place), steps=_MODULE_STEPS)
            known.add(place)
            place = place.rpartition(".")[0]


def charge_heads(specs: Iterable[ConvSpec], budget: Budget) -> None:
    """Charges the budget for the heads of layers of these geometries, a kernel's taps, that they have as attention.

    One large kernel may be the weight of many layers, so that the files' size says nothing of their heads.
    """
    for spec in specs:
        budget.spend(memory=_HEAD * spec.num_heads, steps=_HEAD_STEPS * spec.num_heads)


def _name(key: str, path: Path) -> str:
    if len(key) > MAX_NAME:
        raise CheckpointError(f"{path} has a tensor whose name has {len(key)} letters; at most {MAX_NAME} are read")
    return key


def _described(key: str, value: object, path: Path) -> StoredTensor:
    """A tensor that lies in its file."""
    if isinstance(value, OddTensor):
        raise CheckpointError(f"{path} holds a {value.kind} tensor, {key[:100]!r}; only dense, plain ones are read")
    if not isinstance(value, StoredTensor):
        raise CheckpointError(f"{path} stores a value under {key[:100]!r} that is not a tensor")
    if (flaw := value.flaw()) is not None:
        raise CheckpointError(f"{path} is damaged: {key[:100]!r} {flaw}")
    return value


def _digest(files: Sequence[Path], progress: Progress | None) -> str:
    sums = [_sha256(file, progress) for file in files]
    if len(sums) == 1:
        return sums[0]
    lines = sorted(f"{file.name} {sum_}\n" for file, sum_ in zip(files, sums, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; 0 for what is not there."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _sha256(path: Path, progress: Progress | None) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART):
            found.update(part)
            if progress is not None:
                progress(len(part))
    return found.hexdigest()


def _strip_once(names: Mapping[str, str], expected: set[str]) -> dict[str, str]:
    """Takes one prefix off: the one that all names carry, else those that wrap a part of the network."""
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for name in names.values()):
            return {key: name.removeprefix(wrapper) for key, name in names.items()}
    stripped: dict[str, str] = {}
    origin: dict[str, str] = {}
    for key, name in names.items():
        stripped[key] = name if name in expected else _without_partial_wrapper(name)
        other = origin.setdefault(stripped[key], key)
        if other != key:
            raise CheckpointError(f"{other!r} and {key!r} are both {stripped[key]!r} without wrapper prefixes")
    return stripped


def _without_partial_wrapper(name: str) -> str:
    wrapper = next((wrapper for wrapper in _PARTIAL_WRAPPERS if name.startswith(wrapper)), "")
    return name.removeprefix(wrapper)


def _mismatch(key: str, got: Tensor, wanted: object, assign: bool) -> list[str]:
    """Lists what keeps a tensor from being loaded over another, at most one thing."""
    if not isinstance(wanted, Tensor):
        return [f"{key!r} is a tensor, wanted {type(wanted).__name__}"]
    if is_lazy(wanted) or (wanted.is_meta and not assign):
        return [f"{key!r} is not allocated in the model"]
    if got.shape != wanted.shape:
        return [f"{key!r} has shape {list(got.shape)}, wanted {list(wanted.shape)}"]
    if _kind(got.dtype) != _kind(wanted.dtype):
        return [f"{key!r} is {_kind(got.dtype)}, wanted {_kind(wanted.dtype)}"]
    return []


def _torn(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Lists tensors that are one in the model under several names, and have other numbers under one of them."""
    first: dict[int, str] = {}
    torn = []
    for key, tensor in model.state_dict(keep_vars=True).items():
        other = first.setdefault(id(tensor), key)
        if key in weights and other in weights and not _are_one(weights[key], weights[other]):
            torn.append(f"{other!r} and {key!r} are one tensor, with two values")
    return torn


def _are_one(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bytes."""
    if one is other:
        return True
    alike = one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
    return alike and torch.equal(*(tensor.reshape(-1).contiguous().view(torch.uint8) for tensor in (one, other)))


def _kind(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "boolean"
    if dtype.is_complex:
        return "complex"
    return "floating point" if dtype.is_floating_point else "integer"
