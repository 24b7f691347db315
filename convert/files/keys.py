"""Fits the keys of a state dict to a network's.

Training wraps networks: DistributedDataParallel puts ``module.`` before every key, torch.compile ``_orig_mod.``,
Lightning the name of an attribute, and each may wrap a part of the network only. So a key k of the file is the
network's key e if k is e behind a prefix, perhaps with the names of wrappers inside. Of all prefixes, the one
under which most of the network's keys are found is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Size

from ..errors import CheckpointError
from ..tensors import Versions
from .averages import is_averaged

Expected = Mapping[str, Size | None]
"""Shapes of a network's tensors by key; None is any shape."""

_WRAPPERS = {"module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


class Fitted(NamedTuple):
    """Weights under a network's keys.

    Attributes:
        tensors: The weights, and extra state among them; those that do not fit, under their own keys.
        matched: Number of the network's keys that are found with the network's shape, and number of all that are found.
        prefixes: Prefix that was taken off the keys, with a dot at its end, and others under which as many are found.
        beside: Keys without the prefix.
        names: The network's names by the keys that were read.
    """

    tensors: dict[str, Any]
    matched: tuple[int, int] = (0, 0)
    prefixes: tuple[str, ...] = ("",)
    beside: tuple[str, ...] = ()
    names: Mapping[str, str] = {}


def fit_keys(tensors: Mapping[str, Any], expected: Expected, *, averaged: bool | None = None) -> Fitted:
    """Takes prefixes and wrappers off the keys of a state dict, so that they are the expected ones of a network.

    With ``averaged``, only keys behind the name of a moving average are taken; with False only others, with None any.
    """
    votes: Counter[str] = Counter()
    for key, tensor in tensors.items():
        for prefix, name in _readings(key, expected):
            if averaged is None or is_averaged(prefix) is averaged:
                votes[prefix] += 1 + _fits(tensor, expected[name]) * len(tensors)
    if averaged and not votes:
        return Fitted(dict(tensors), names={key: key for key in tensors})
    best = max(votes, key=lambda prefix: (votes[prefix], -len(prefix)), default="")
    rivals = [prefix for prefix in votes if best and votes[prefix] == votes[best] and prefix != best]
    names = {key: _name(key, best, expected) for key in tensors if key.startswith(best)}
    others = {key: _name(key, "", expected) for key in tensors if key not in names}  # as of a part that was not wrapped
    names |= {key: name for key, name in others.items() if name in expected and name not in names.values()}
    while more := _without_one_more(names, tensors, expected):
        names |= more
    fitted: dict[str, Any] = {}
    for key in sorted(names, key=lambda key: names[key] != key.removeprefix(best)):  # exact names first
        if names[key] in fitted and names[key] in expected and fitted[names[key]] is not tensors[key]:
            raise CheckpointError(f"two keys are {names[key]!r} without the names of wrappers; one is {key!r}")
        fitted[names[key]] = tensors[key]
    found = [name for name in fitted if name in expected]
    alike = sum(_fits(fitted[name], expected[name]) for name in found)
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


def _fits(value: Any, shape: Size | None) -> bool:
    """Whether a tensor has an expected shape, or a value stands where anything can."""
    return shape is None or getattr(value, "shape", None) == shape


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


def _without_one_more(names: Mapping[str, str], tensors: Mapping[str, Any], expected: Expected) -> dict[str, str]:
    """Names without one attribute inside them, the one that makes most of those fit that do not yet."""
    taken = set(names.values()) & expected.keys()
    found: dict[str, dict[str, str]] = {}
    for key, name in names.items():
        parts = name.split(".") if name not in expected else []
        for place, part in enumerate(parts[:-1]):
            shorter = _name(".".join(parts[:place] + parts[place + 1 :]), "", expected)
            if (
                shorter not in taken
                and shorter in expected
                and expected[shorter] == getattr(tensors[key], "shape", None)
            ):
                found.setdefault(part, {})[key] = shorter
    fitting = [each for each in found.values() if len(set(each.values())) == len(each)]
    return max(fitting, key=len, default={})
