"""Finds the weights in a checkpoint: its only dictionary of tensors, under any key, or the one that fits.

Raises:
    CheckpointError: By every function here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import CheckpointError, SeveralNetworksError, listed
from ..spec import DescribedConvolution
from .architecture import Architecture
from .keys import Expected, fit_keys, is_averaged, renamed
from .readers import Contents, read_contents
from .readers.described import is_module, kinds_of, pickled_network
from .readers.quantised import FLOAT_STATE, quantised, quantised_classes
from .readers.torch import Inert
from .tensors import Versions, versions_of
from .tensors import place as place_of

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
        keys = listed([repr(key)[:50] for key in held]) if isinstance(held, dict) else ""
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
