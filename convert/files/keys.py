"""Fits the keys of a file's weights to those of a network, and loads them.

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
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Size, Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import CheckpointError, first_line, listed
from .readers.quantised import FLOAT_STATE, quantised, quantised_keys
from .tensors import Versions, with_versions

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
        if key in tensors and not _are_one(tensors[key], tensors[first[id(tensor)]])
    ]
    if problems:
        raise _unfit(path, given, wanted, problems)
    kinds = {key: wanted[key].dtype for key in given if isinstance(wanted.get(key), Tensor)}
    weights = {key: value.to(kinds.get(key, value.dtype)) for key, value in given.items()} if assign else given
    try:
        found = model.load_state_dict(with_versions(weights, versions), strict=False, assign=assign)
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit the architecture: {' '.join(str(error).split())[:500]}") from error
    except Exception as error:  # of a class that translates older files
        raise CheckpointError(f"{path} does not fit the architecture: {first_line(error)[:500]}") from error
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


def _are_quantised(tensors: Mapping[str, Tensor], wanted: Mapping[str, object]) -> bool:
    """Whether a state dict holds bytes for weights, or scales and zero points beside them."""
    integers = any(
        isinstance(own := wanted.get(key), Tensor) and own.is_floating_point() and value.dtype in _BYTES
        for key, value in tensors.items()
    )
    return integers or bool(quantised_keys(tensors.keys() - wanted.keys()))


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
    return CheckpointError(f"{path} does not fit the architecture: {told}")


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
