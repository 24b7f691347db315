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
from .architecture import Architecture
from .keys import Expected, Fitted, fit_keys, is_averaged
from .readers import Contents, read_contents
from .readers.described import DescribedConvolution
from .readers.inert import Inert
from .readers.modules import is_module, pickled_network

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
        extra: Keys that were left out, since they belong to no part of the network.
    """

    path: Path
    state_dict: dict[str, Tensor]
    sha256: str
    convolutions: Mapping[str, DescribedConvolution] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    network: nn.Module | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """Weights at a place in a checkpoint: keys with dots between them."""

    place: str
    tensors: dict[str, Any]
    convolutions: Mapping[str, DescribedConvolution] = field(default_factory=dict)
    network: nn.Module | None = None
    fitted: Fitted | None = None

    @property
    def is_averaged(self) -> bool:
        """Whether it lies at a usual name of a moving average."""
        return is_averaged(self.place)


def read_checkpoint(path: str | Path, opening: Opening | None = None) -> Checkpoint:
    """Reads the weights of a checkpoint.

    Args:
        path: The file or folder; its name does not matter.
        opening: Options for opening it; its architecture is not looked at.

    Raises:
        CheckpointError: The file cannot be read, is of another kind, is damaged, or holds no tensors or several
            networks to choose from.
        TrustNeededError: It is a program, and not trusted.
    """
    path, opening = Path(path), opening or Opening()
    return find_weights(read_contents(path, trust=opening.trust), path, opening)


def find_weights(contents: Contents, path: Path, opening: Opening, *, expected: Expected | None = None) -> Checkpoint:
    """Finds the weights in the contents of a checkpoint.

    Args:
        contents: Its contents.
        path: Where it was read from.
        opening: Choice of the weights.
        expected: Keys and shapes of the network that the weights are for; the weights then get its keys where they
            fit. None takes the only weights that there are.
    """
    found = list(_candidates(contents.value, "", 0))
    if not found:
        keys = listed([repr(key)[:50] for key in contents.value]) if isinstance(contents.value, dict) else ""
        raise CheckpointError(f"{path} holds no named tensors; it holds {keys or _kind(contents.value)}")
    average = opening.ema if opening.weights is None else None
    found = found if opening.weights is None else [_named(found, opening.weights, path)]
    chosen = _chosen(found, expected, path, average)
    fitted = chosen.fitted or Fitted(chosen.tensors, (0, 0), "")
    tensors = {key: each for key, each in fitted.tensors.items() if not (chosen.is_averaged and key == "n_averaged")}
    convolutions = {**chosen.convolutions, **contents.convolutions}
    state = _plain(tensors, path)
    return Checkpoint(path, state, contents.sha256, convolutions, contents.files, chosen.network, fitted.beside)


def size_on_disk(path: Path) -> int:
    """Size in bytes of a file, or of the files in a folder; 0 if it does not exist."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _candidates(value: Any, place: str, depth: int) -> Iterator[_Found]:
    """The dictionaries of tensors and the networks in a checkpoint, the outer ones first."""
    if depth > _MAX_DEPTH:
        return
    if is_module(value):
        own, convolutions, network = pickled_network(value)
        if own or convolutions:
            yield _Found(place, own, convolutions, network)
        return
    if isinstance(value, Inert):
        value = value.state if isinstance(value.state, dict) else value.args
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return
    tensors = {key: each for key, each in value.items() if isinstance(key, str) and _is_numbers(each)}
    if tensors and not _MOMENTS & tensors.keys():
        yield _Found(place, tensors)
    for key, each in value.items():
        if isinstance(key, str | int) and not _is_numbers(each):
            yield from _candidates(each, f"{place}.{key}" if place else str(key), depth + 1)


def _is_numbers(value: object) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "fiubc")


def _named(found: Sequence[_Found], key: str, path: Path) -> _Found:
    """The weights at a key: at a place, or behind a prefix in the keys of one."""
    for each in (*found, *(replace(each, place=key) for each in found if each.place.endswith(f".{key}"))):
        if each.place == key:
            return each
    for each in found:
        parts = ((f".{name}".partition(f".{key}."), value) for name, value in each.tensors.items())
        own = {name: value for (_, _, name), value in parts if name}
        if own:
            return _Found(key, own)
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
        scored = [
            (_score(each, expected, wanted), each) for each in found if wanted is not False or not each.is_averaged
        ]
        best = max((score for (score, _), _ in scored), default=(0, 0))
        if any(best):
            break
    alike = [replace(each, fitted=fitted) for (score, fitted), each in scored if score == best]
    if not any(best) and average:
        raise CheckpointError(
            f"{path} holds no moving average of the weights under a usual name; it holds {_listed(found)}"
        )
    usual = [each for place in _USUAL for each in alike if each.place == place]
    if len(alike) > 1 and not usual and any(best):
        what = "several networks" if expected is None else "several networks that fit"
        raise SeveralNetworksError(f"{path} holds {what}: {_listed(alike)}")
    chosen = (usual or alike)[0]
    if any(best) and chosen.fitted is not None and chosen.fitted.rivals:
        keys = listed([repr(each.removesuffix(".")) for each in (chosen.fitted.prefix, *chosen.fitted.rivals)])
        raise SeveralNetworksError(f"{path} holds the network more than once, behind the keys {keys}")
    return chosen


def _score(found: _Found, expected: Expected | None, average: bool | None) -> tuple[tuple[int, int], Fitted | None]:
    """How well weights serve, and with a network's keys the weights under these.

    Below the name of a moving average, every key counts as averaged.
    """
    if expected is None:
        if average and not found.is_averaged:
            return (0, 0), None
        kernels = bool(found.convolutions) or any(value.ndim > 2 for value in found.tensors.values())
        return (1 + kernels, int(kernels and _TRAINING.search(found.place) is None)), None
    numbers = {key: _tensor(value) if isinstance(value, np.ndarray) else value for key, value in found.tensors.items()}
    fitted = fit_keys(numbers, expected, averaged=None if average and found.is_averaged else average)
    return fitted.matched, fitted


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


def _kind(value: object) -> str:
    name = value.kind if isinstance(value, Inert) else type(value).__name__
    return f"an object of {name[:100]}"
