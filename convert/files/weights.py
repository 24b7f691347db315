"""The weights in a checkpoint: finds them, and fits their keys to the network's.

The weights are the file's only dictionary of tensors, under any key, or of several the one that fits.

Training wraps networks: DistributedDataParallel puts ``module.`` before every key, torch.compile ``_orig_mod.``,
Lightning the name of an attribute, and each may wrap a part of the network only. So a key k of the file is the
network's key e if k is e behind a prefix, perhaps with the names of wrappers inside. Of all prefixes, the one
under which most of the network's keys are found is taken.

Raises:
    CheckpointError: By every function here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Size, Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import CheckpointError, ClassesDifferError, SeveralNetworksError, first_line, listed
from ..spec import DescribedConvolution
from ..write import Versions, have_same_bytes, versions_of, with_versions
from ..write import place as place_of
from .architecture import Architecture
from .pickles import Inert, is_module, kinds_of, pickled_network
from .readers import FLOAT_STATE, Contents, quantised, quantised_classes, quantised_keys, read_contents

_USUAL = ("state_dict", "model", "model_state_dict", "module", "net", "network", "weights", "params", "")
_TRAINING = re.compile(r"optim|sched|scaler|rng|callback|loss|metric|loops", re.IGNORECASE)
_MOMENTS = {"exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg"}
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Opening:
    """Options for opening a checkpoint.

    Attributes:
        architecture: The CNN, of which a copy is used, or how to build it. None takes the network in the file, or the
            one that a folder names (with consent, where needed), or the layers whose geometry the file describes.
        ema: Use the moving average of the weights.
        weights: Key of the weights, nested keys joined by dots; None finds them.
        trust: Run the code that a program brings or names, or that a folder names as its architecture.
    """

    architecture: nn.Module | Architecture | None = None
    ema: bool = False
    weights: str | None = None
    trust: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """The weights of one checkpoint.

    Attributes:
        path: The file or folder.
        state_dict: Plain tensors on the CPU, detached, over the mapped file; names as saved, wrappers included.
        sha256: SHA-256 in hexadecimal: of the whole file, or of the sums and names of several, one a line.
        convolutions: Convolutions whose geometry the checkpoint itself describes, by the names of their layers.
        files: Every file that was read.
        network: The network itself, where the checkpoint holds one that runs.
        unknown: Names of classes that its pickled network has, and that are not known.
        extra: Keys that were left out, since they belong to no part of the network.
        versions: Versions of the classes that wrote the weights, where the file tells them.
        dequantised: Keys of quantised tensors, which became (integer - zero point) * scale.
    """

    path: Path
    state_dict: dict[str, Tensor]
    sha256: str
    convolutions: Mapping[str, DescribedConvolution] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    network: nn.Module | None = None
    unknown: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    versions: Versions = None
    dequantised: tuple[str, ...] = ()

    @property
    def left_over(self) -> tuple[str, ...]:
        """The keys that were left out, but for counters that tools leave, and constants of an ONNX file's graph."""
        is_graph = self.path.suffix == ".onnx"
        own = (key for key in self.extra if key.rpartition(".")[2] not in _EXTRA)
        return tuple(key for key in own if "." in key or not is_graph)


@dataclass(frozen=True)
class _Found:
    """Weights at a place in a checkpoint, keys with dots between them, and how well they fit a network."""

    place: str
    tensors: dict[str, Any]
    network: nn.Module | None = None
    unknown: tuple[str, ...] = ()
    quantised: tuple[str, ...] = ()
    score: tuple[int, int] = (0, 0)
    prefixes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    versions: Versions = None

    @property
    def is_averaged(self) -> bool:
        """Whether it lies at a usual name of a moving average."""
        return is_averaged(self.place)


def read_checkpoint(path: str | Path, opening: Opening | None = None) -> Checkpoint:
    """Reads the weights of a checkpoint; the architecture among the options is not looked at.

    Raises:
        CheckpointError: The file cannot be read, is of another kind, is damaged, or holds no tensors or several
            networks to choose from.
        TrustNeededError: It is a program, and not trusted.
    """
    path, opening = Path(path), opening or Opening()
    return find_weights(read_contents(path, trust=opening.trust), path, opening)


def find_weights(contents: Contents, path: Path, opening: Opening, *, expected: Expected | None = None) -> Checkpoint:
    """Finds the weights in the contents of a checkpoint.

    With the keys and shapes of the network that they are for, the weights get its keys where they fit; without these,
    they are the only weights that there are.
    """
    found = list(_candidates(contents.value, "", 0))
    if not found:
        held = contents.value
        kind = held.kind if isinstance(held, Inert) else type(held).__name__
        keys = (listed([repr(key)[:50] for key in held]) or "nothing") if isinstance(held, dict) else ""
        raise CheckpointError(f"{path} holds no named tensors; it holds {keys or f'an object of {kind[:100]}'}")
    average = opening.ema if opening.weights is None else None
    found = found if opening.weights is None else [_named(found, opening.weights, path)]
    chosen = _chosen(found, expected, path, average)
    if chosen.quantised:
        raise quantised(path, FLOAT_STATE, chosen.quantised)
    tensors = {key: each for key, each in chosen.tensors.items() if not (chosen.is_averaged and key == "n_averaged")}
    return Checkpoint(
        path,
        _plain(tensors, path),
        contents.sha256,
        contents.convolutions,
        contents.files,
        chosen.network,
        chosen.unknown,
        chosen.beside,
        chosen.versions,
        tuple(key for key, value in tensors.items() if isinstance(value, Tensor) and value.is_quantized),
    )


def _candidates(value: Any, place: str, depth: int) -> Iterator[_Found]:
    """The dictionaries of tensors and the networks in a checkpoint, the outer ones first."""
    if depth > _MAX_DEPTH:
        return
    if is_module(value):
        own, unknown = pickled_network(value)
        integers = tuple(quantised_classes(kinds_of(value)))
        if own or integers:
            yield _Found(place, own, None if unknown else value, unknown, integers)
        return
    if isinstance(value, Inert):
        value = value.state if isinstance(value.state, dict) else value.args
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return
    tensors = {key: each for key, each in value.items() if isinstance(key, str) and _is_numbers(each)}
    if tensors and not _MOMENTS & tensors.keys():
        versions = versions_of(value)
        yield _Found(place, tensors, versions=versions)
        for head, averaged in _averaged_without_dots(tensors):
            yield _Found(f"{place}.{head}" if place else head, averaged, versions=versions)
    for key, each in value.items():
        if isinstance(key, str | int) and not _is_numbers(each):
            yield from _candidates(each, f"{place}.{key}" if place else str(key), depth + 1)


def _averaged_without_dots(tensors: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Moving averages under names without their dots, as latent diffusion keeps them beside the weights.

    Yields:
        The part of the keys that names the average, and the weights with the averaged ones in their places.
    """
    heads = dict.fromkeys(key.partition(".")[0] for key in tensors if "." in key)
    for head in filter(is_averaged, heads):
        beside = {key: value for key, value in tensors.items() if not key.startswith(f"{head}.")}
        plain = {key: value for key, value in beside.items() if isinstance(value, Tensor)}
        words = {key: key.split(".") for key in plain}
        names = {"".join(own[first:]): key for key, own in words.items() for first in range(len(own))}
        averaged = {key: tensors[f"{head}.{name}"] for name, key in names.items() if f"{head}.{name}" in tensors}
        if averaged:
            shared = {place_of(plain[key]): value for key, value in averaged.items()}
            yield head, {key: averaged.get(key, shared.get(place_of(value), value)) for key, value in plain.items()}


def _is_numbers(value: object) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "fiubc")


def _named(found: Sequence[_Found], key: str, path: Path) -> _Found:
    """The weights at a key: at a place, or behind a prefix in the keys of one."""
    for each in (*found, *(replace(each, place=key) for each in found if each.place.endswith(f".{key}"))):
        if each.place == key:
            return each
    for each in found:
        names = {name: f".{name}".partition(f".{key}.")[2] for name in each.tensors}
        names = {name: short for name, short in names.items() if short}
        if names:
            own = {short: each.tensors[name] for name, short in names.items()}
            return _Found(key, own, versions=renamed(each.versions, names))
    beginnings = dict.fromkeys(name.partition(".")[0] for each in found for name in each.tensors if "." in name)
    raise CheckpointError(
        f"{path} holds no weights under {key!r}; it holds {_listed(found)}, "
        f"with keys that begin with {listed(list(beginnings))}"
    )


def _chosen(found: Sequence[_Found], expected: Expected | None, path: Path, average: bool | None) -> _Found:
    """The weights that fit a network best, or without one the only weights of a network.

    Without ``average`` a moving average is taken if there is nothing else; None takes anything.
    """
    for wanted in (average,) if average else (average, None):
        scored = [_scored(each, expected, wanted) for each in found if wanted is not False or not each.is_averaged]
        best = max((each.score for each in scored), default=(0, 0))
        if any(best):
            break
    alike = [each for each in scored if each.score == best]
    usual = [each for place in _USUAL for each in alike if each.place == place]
    if not any(best) and average:
        raise CheckpointError(
            f"{path} holds no moving average of the weights under a usual name; it holds {_listed(found)}"
        )
    if len(alike) > 1 and not usual and any(best):
        what = "several networks" if expected is None else "several networks that fit"
        raise SeveralNetworksError(f"{path} holds {what}: {_listed(alike)}")
    chosen = (usual or alike)[0]
    if any(best) and len(chosen.prefixes) > 1:
        keys = listed([repr(each.removesuffix(".")) for each in chosen.prefixes])
        raise SeveralNetworksError(f"{path} holds the network more than once, behind the keys {keys}")
    return chosen


def _scored(found: _Found, expected: Expected | None, average: bool | None) -> _Found:
    """The same weights with how well they serve; under a network's keys, where these are known.

    Below the name of a moving average, every key counts as averaged.
    """
    if expected is None:
        if average and not found.is_averaged:
            return found
        kernels = any(value.ndim > 2 for value in found.tensors.values())
        return replace(found, score=(1 + kernels, int(kernels and _TRAINING.search(found.place) is None)))
    numbers = {key: _tensor(value) if isinstance(value, np.ndarray) else value for key, value in found.tensors.items()}
    averaged = None if average and found.is_averaged else average
    tensors, score, prefixes, beside, names = fit_keys(numbers, expected, averaged=averaged)
    versions = renamed(found.versions, names)
    return replace(found, tensors=tensors, versions=versions, score=score, prefixes=prefixes, beside=beside)


def _plain(tensors: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Dense tensors of plain numbers; tensors shared in the file stay shared."""
    made: dict[int, Tensor] = {}
    for key, value in tensors.items():
        if id(value) not in made:
            tensor = _tensor(value)
            if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
                kind = "meta" if tensor.is_meta else "nested" if tensor.is_nested else "sparse"
                raise CheckpointError(f"{path} holds a {kind} tensor, {key[:100]!r}; only dense, plain ones are read")
            made[id(value)] = tensor
    return {key: made[id(value)] for key, value in tensors.items()}


def _tensor(value: Any) -> Tensor:
    """A tensor or an array as a plain tensor; quantized integers are dequantized."""
    if isinstance(value, np.ndarray):
        native = value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
        return torch.from_numpy(np.array(native, order="C"))
    tensor = (value.dequantize() if value.is_quantized else value).detach()
    return tensor if type(tensor) is Tensor else tensor.as_subclass(Tensor)


def _listed(found: Sequence[_Found]) -> str:
    places = [repr(each.place) if each.place else "the top level" for each in found]
    return listed([f"{place} ({len(each.tensors)} tensors)" for place, each in zip(places, found, strict=True)])


Expected = Mapping[str, Size | None]
"""Shapes of a network's tensors by key; None is any shape."""

_WRAPPERS = {"module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_COUNTER = "num_batches_tracked"  # batch normalisation had none before PyTorch 0.4.1
_BYTES = (torch.int8, torch.uint8)
_EXTRA = {"total_ops", "total_params", "n_averaged", "position_ids"}  # left beside weights by thop and torch
_AVERAGED = re.compile(r"(^|_)(ema|swa|averaged?|avg|shadow)\d*(_|$)", re.IGNORECASE)


class Fitted(NamedTuple):
    """Weights under a network's keys.

    Attributes:
        tensors: The weights; those that do not fit, under their own keys.
        matched: Number of the network's keys that are found with the network's shape, and number of all that are found.
        prefixes: Prefix that was taken off the keys, with a dot at its end, and others under which as many are found.
        beside: Keys without the prefix.
        names: The network's names by the keys that were read.
    """

    tensors: dict[str, Tensor]
    matched: tuple[int, int] = (0, 0)
    prefixes: tuple[str, ...] = ("",)
    beside: tuple[str, ...] = ()
    names: Mapping[str, str] = {}


def is_averaged(place: str) -> bool:
    """Whether a key, or a dotted path of keys, has a usual name of a moving average of weights."""
    return any(_AVERAGED.search(part) is not None for part in place.split("."))


def fit_keys(tensors: Mapping[str, Tensor], expected: Expected, *, averaged: bool | None = None) -> Fitted:
    """Takes prefixes and wrappers off the keys of a state dict, so that they are the expected ones of a network.

    With ``averaged``, only keys behind the name of a moving average are taken; with False only others, with None any.
    """
    votes: Counter[str] = Counter()
    for key, tensor in tensors.items():
        for prefix, name in _readings(key, expected):
            if averaged is None or is_averaged(prefix) is averaged:
                votes[prefix] += 1 + (expected[name] in (None, tensor.shape)) * len(tensors)
    if averaged and not votes:
        return Fitted(dict(tensors), names={key: key for key in tensors})
    best = max(votes, key=lambda prefix: (votes[prefix], -len(prefix)), default="")
    rivals = [prefix for prefix in votes if best and votes[prefix] == votes[best] and prefix != best]
    names = {key: _name(key, best, expected) for key in tensors if key.startswith(best)}
    others = {key: _name(key, "", expected) for key in tensors if key not in names}  # as of a part that was not wrapped
    names |= {key: name for key, name in others.items() if name in expected and name not in names.values()}
    while more := _without_one_more(names, tensors, expected):
        names |= more
    fitted: dict[str, Tensor] = {}
    for key in sorted(names, key=lambda key: names[key] != key.removeprefix(best)):  # exact names first
        if names[key] in fitted and names[key] in expected and fitted[names[key]] is not tensors[key]:
            raise CheckpointError(f"two keys are {names[key]!r} without the names of wrappers; one is {key!r}")
        fitted[names[key]] = tensors[key]
    found = [name for name in fitted if name in expected]
    alike = sum(expected[name] in (None, fitted[name].shape) for name in found)
    in_order = {names[key]: fitted[names[key]] for key in tensors if key in names}
    beside = tuple(key for key in tensors if key not in names)
    return Fitted(in_order, (alike, len(found)), (best, *rivals), beside, names)


def renamed(versions: Versions, names: Mapping[str, str]) -> Versions:
    """Versions under the modules' new names, from the tensors' new names by their old ones.

    A module that is wrapped has its own version, not its wrapper's.
    """
    if versions is None:
        return None
    found: dict[str, Mapping[str, object]] = {}
    for key, name in names.items():
        old, new = key.split("."), name.split(".")
        while old and new:
            if old.pop() == new[-1]:
                new.pop()
                found.setdefault(".".join(new), versions.get(".".join(old), {}))
    return found


def load_into(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    versions: Versions = None,
    assign: bool = False,
    beside: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Loads every weight into a model, under the model's keys or those that its own hooks translate.

    Values are converted to the model's dtype and device; with ``assign``, to its dtype alone, and not copied if they
    have it. Only ``num_batches_tracked`` may be missing, as in files that are older than it, and a second name of a
    tensor that is there under its first. After an error the model is not to be used.

    Classes translate what older versions of theirs wrote by the versions that are given, as ``torch.load`` gave them.

    With ``beside``, the file's other keys, which are named if a key is missing, those of no part of the model, as of a
    loss beside it, and counters that tools leave are passed over and returned; without it, none are. Where the model
    has integers or truth values, other kinds are taken whose numbers are the same.

    Raises:
        CheckpointError: A key is missing or unexpected, a shape or a kind of dtype (floating, complex,
            integer, boolean) differs, tensors that are one in the model differ in the file, or the model is lazy or,
            without ``assign``, on the meta device.
    """
    wanted, sharing = model.state_dict(), model.state_dict(keep_vars=True)
    first = {id(tensor): key for key, tensor in reversed(sharing.items()) if key in tensors}
    given = {key: tensors[first[id(tensor)]] for key, tensor in sharing.items() if id(tensor) in first} | {**tensors}
    checked = (_mismatch(key, given[key], wanted[key], assign) for key in given if key in wanted)
    problems = [text for text in checked if text is not None]
    problems += [
        f"{first[id(tensor)]!r} and {key!r} are one tensor, with two values"
        for key, tensor in sharing.items()
        if key in tensors and not have_same_bytes(tensors[key], tensors[first[id(tensor)]])
    ]
    if problems:
        raise _other_classes(path, given, wanted) or _unfit(path, given, wanted, problems)
    kinds = {key: wanted[key].dtype for key in given if isinstance(wanted.get(key), Tensor)}
    weights = {key: value.to(kinds.get(key, value.dtype)) for key, value in given.items()} if assign else given
    with _refused_by_classes(path):
        found = model.load_state_dict(with_versions(weights, versions), strict=False, assign=assign)
    missing = [key for key in found.missing_keys if key.rpartition(".")[2] != _COUNTER]
    children = {name.partition(".")[0] for name in wanted}
    passed = tuple(
        key
        for key in found.unexpected_keys
        if beside is not None and (key.partition(".")[0] not in children or key.rpartition(".")[2] in _EXTRA)
    )
    unexpected = [key for key in found.unexpected_keys if key not in passed]
    if missing or unexpected:
        others = (*passed, *(beside or ())) if missing else ()
        raise _unfit(path, given, wanted, [f"{key!r} is missing" for key in missing], [*unexpected, *others])
    return passed


@contextmanager
def _refused_by_classes(path: Path) -> Iterator[None]:
    """Whatever the network's classes raise as they load a file's weights becomes a CheckpointError."""
    try:
        yield
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit the architecture: {' '.join(str(error).split())[:500]}") from error
    except Exception as error:  # of a class that translates older files
        raise CheckpointError(f"{path} does not fit the architecture: {first_line(error)[:500]}") from error


def _are_quantised(tensors: Mapping[str, Tensor], wanted: Mapping[str, object]) -> bool:
    """Whether a state dict holds bytes for weights, or scales and zero points beside them."""
    integers = any(
        isinstance(own := wanted.get(key), Tensor) and own.is_floating_point() and value.dtype in _BYTES
        for key, value in tensors.items()
    )
    return integers or bool(quantised_keys(tensors.keys() - wanted.keys()))


def _other_classes(path: Path, given: Mapping[str, Tensor], wanted: Mapping[str, object]) -> CheckpointError | None:
    """An error where all that does not fit is the number of the last layer's outputs; else None."""
    pairs = {key: (tensor, wanted[key]) for key, tensor in given.items()} if given.keys() == wanted.keys() else {}
    other = {key: (one, two) for key, (one, two) in pairs.items() if isinstance(two, Tensor) and one.shape != two.shape}
    layers, last = {key.rpartition(".")[0] for key in other}, list(wanted)[-1].rpartition(".")[0]
    counts = {(len(one), len(two)) for one, two in other.values() if one.ndim and two.ndim}
    if layers != {last} or len(counts) != 1 or any(one.shape[1:] != two.shape[1:] for one, two in other.values()):
        return None
    ((found, expected),) = counts
    told = f"{path} has {found:,} classes, the architecture {expected:,}: '{last}' has as many outputs"
    return ClassesDifferError(told, found)


def _unfit(
    path: Path,
    given: Mapping[str, Tensor],
    wanted: Mapping[str, object],
    problems: Sequence[str],
    unexpected: Sequence[str] = (),
) -> CheckpointError:
    """An error that lists the keys that do not fit, and those that the file has in their place."""
    if _are_quantised(given, wanted):
        return quantised(path, FLOAT_STATE, [*problems, *unexpected])
    held = [f"it holds {listed([repr(key) for key in unexpected])}, which the architecture lacks"] if unexpected else []
    told = "; ".join([*([listed(problems, "; ")] if problems else []), *held])
    fitting = sum(_mismatch(key, given[key], wanted[key], assign=True) is None for key in given if key in wanted)
    lacking = sum(key not in given and key.rpartition(".")[2] != _COUNTER for key in wanted)
    extra = len(given.keys() - wanted.keys())
    counts = f"{fitting:,} of {len(wanted):,} keys fit, missing {lacking:,}, left over {extra:,}"
    return CheckpointError(f"{path} does not fit the architecture: {counts}: {told}")


def _readings(key: str, expected: Expected) -> Iterator[tuple[str, str]]:
    """Every prefix of a key that leaves one of the network's keys, with that key."""
    parts = key.split(".")
    for first in range(len(parts)):
        prefix = ".".join(parts[:first]) + "." if first else ""
        name = _name(key, prefix, expected)
        if name in expected and (name == key.removeprefix(prefix) or parts[first] not in _WRAPPERS):
            yield prefix, name


def _name(key: str, prefix: str, expected: Expected) -> str:
    """A key without a prefix, and without the names of wrappers inside it where that is one of the network's."""
    rest = key.removeprefix(prefix)
    bare = ".".join(part for part in rest.split(".") if part not in _WRAPPERS)
    return bare if rest not in expected and bare in expected else rest


def _without_one_more(names: Mapping[str, str], tensors: Mapping[str, Tensor], expected: Expected) -> dict[str, str]:
    """Names without one attribute inside them, the one that makes most of those fit that do not yet."""
    taken = set(names.values()) & expected.keys()
    found: dict[str, dict[str, str]] = {}
    for key, name in names.items():
        parts = name.split(".") if name not in expected else []
        for place, part in enumerate(parts[:-1]):
            shorter = _name(".".join(parts[:place] + parts[place + 1 :]), "", expected)
            if shorter not in taken and expected.get(shorter) == tensors[key].shape:
                found.setdefault(part, {})[key] = shorter
    fitting = [each for each in found.values() if len(set(each.values())) == len(each)]
    return max(fitting, key=len, default={})


def _mismatch(key: str, got: Tensor, wanted: object, assign: bool) -> str | None:
    """The reason why a tensor cannot be loaded over another, or None."""
    if not isinstance(wanted, Tensor):
        return f"{key!r} is a tensor, wanted {type(wanted).__name__}"
    if is_lazy(wanted) or (wanted.is_meta and not assign):
        return f"{key!r} is not allocated in the model"
    if got.shape != wanted.shape and not (wanted.ndim == 0 and got.shape == (1,)):  # as PyTorch reads them
        return f"{key!r} has shape {list(got.shape)}, wanted {list(wanted.shape)}"
    kinds = _kind(got.dtype), _kind(wanted.dtype)
    if kinds[0] == kinds[1] or (not wanted.is_floating_point() and _keeps_values(got, wanted.dtype)):
        return None
    return f"{key!r} is {kinds[0]}, wanted {kinds[1]}"


def _keeps_values(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether a tensor has the same numbers in another dtype, as counters and masks of other writers have."""
    return not tensor.is_complex() and torch.equal(tensor.to(dtype).to(tensor.dtype), tensor)


def _kind(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "boolean"
    if dtype.is_complex:
        return "complex"
    return "floating point" if dtype.is_floating_point else "integer"
