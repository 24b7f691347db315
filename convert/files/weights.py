"""The weights in a checkpoint: finds them, and fits their keys to the network's.

The weights are the file's only dictionary of tensors, under any key, or of several the one that fits.

A file can also hold one dictionary for each part of a network (``{"backbone": ..., "head": ...}``): the part's name is
then put before its keys, where they fit so. A moving average may leave out what is not averaged, such as the statistics
of batch normalisation: the rest is taken from the weights beside it.

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
from ..tensors import Versions, versions_of
from .averages import SWAPPED_OR_NOT, in_order, is_averaged, joined, swapped
from .keys import Expected, fit_keys, renamed
from .loading import LEFT_BY_TOOLS
from .opening import Opening
from .pickles import Inert, is_module, kinds_of, pickled_network
from .readers import FLOAT_STATE, Contents, quantised, quantised_classes, read_contents
from .state import extra_state_of, is_extra_state

_USUAL = ("state_dict", "model", "model_state_dict", "module", "net", "network", "weights", "params", "")
_TRAINING = re.compile(r"optim|sched|scaler|rng|callback|loss|metric|loops", re.IGNORECASE)
_MOMENTS = {"exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg"}
_MAX_DEPTH = 8


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
        extra_state: Extra state of modules, any objects, by its keys.
        order: All keys of a folder that conv2attn wrote, in the order of the network's state dict; else empty.
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
    extra_state: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    @property
    def left_over(self) -> tuple[str, ...]:
        """The keys that were left out, but for counters that tools leave, and constants of an ONNX file's graph."""
        is_graph = self.path.suffix == ".onnx"
        own = (key for key in self.extra if key.rpartition(".")[2] not in LEFT_BY_TOOLS)
        return tuple(key for key in own if "." in key or not is_graph)


@dataclass(frozen=True)
class _Found:
    """Weights at a place in a checkpoint, keys with dots between them, and how well they fit a network.

    Attributes:
        average: Whether its library is known to keep the average here (True) or the trained weights (False).
        may_be_swapped: Whether the weights beside it may be the average instead.
        parts: State dicts of parts of the network, by the parts' names, instead of tensors.
        series: Averages in the order of the network's parameters, instead of tensors.
    """

    place: str
    tensors: dict[str, Any]
    network: nn.Module | None = None
    unknown: tuple[str, ...] = ()
    quantised: tuple[str, ...] = ()
    score: tuple[int, int] = (0, 0)
    prefixes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    versions: Versions = None
    average: bool | None = None
    may_be_swapped: bool = False
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    series: tuple[Tensor, ...] = ()

    @property
    def is_averaged(self) -> bool:
        """Whether it lies at a usual name of a moving average."""
        return is_averaged(self.place)

    @property
    def holds_average(self) -> bool:
        """Whether it is a moving average, by its library's custom or else by its place's name."""
        return self.is_averaged if self.average is None else self.average


def read_checkpoint(path: str | Path, opening: Opening | None = None) -> Checkpoint:
    """Reads the weights of a checkpoint; the architecture among the options is not looked at.

    Raises:
        CheckpointError: The file cannot be read, is of another kind, is damaged, or holds no tensors or several
            networks to choose from.
        TrustNeededError: It is a program, and not trusted.
    """
    path, opening = Path(path), opening or Opening()
    return find_weights(read_contents(path, trust=opening.trust), path, opening)


def find_weights(
    contents: Contents,
    path: Path,
    opening: Opening,
    *,
    expected: Expected | None = None,
    orders: Sequence[Sequence[str]] = (),
) -> Checkpoint:
    """Finds the weights in the contents of a checkpoint.

    With the keys and shapes of the network that they are for, the weights get its keys where they fit; without these,
    they are the only weights that there are. A list of averages is read in one of the orders of parameters' names.
    """
    # all dictionaries of tensors, and which of them are averages
    found = list(_candidates(contents.value, "", 0))
    if not any(each.tensors or each.quantised for each in found):
        held = contents.value
        kind = held.kind if isinstance(held, Inert) else type(held).__name__
        keys = (listed([repr(key)[:50] for key in held]) or "nothing") if isinstance(held, dict) else ""
        raise CheckpointError(f"{path} holds no named tensors; it holds {keys or f'an object of {kind[:100]}'}")
    known = swapped(contents.value) if isinstance(contents.value, dict) else {}
    found = [replace(each, average=known.get(each.place)) for each in found]
    # the ones that are asked for, or that fit best
    average = opening.ema if opening.weights is None else None
    found = [_named_in_order(each, orders, expected) for each in found]
    from_all = found if opening.weights is None else [_named(found, opening.weights, path)]
    chosen = _chosen(from_all, expected, path, average)
    if chosen.quantised:
        raise quantised(path, FLOAT_STATE, chosen.quantised)
    if expected is not None and (opening.ema or chosen.holds_average):
        chosen = _completed(chosen, found, expected)
    # tensors apart from extra state
    held = {key: each for key, each in chosen.tensors.items() if not (chosen.is_averaged and key == "n_averaged")}
    tensors = {key: each for key, each in held.items() if not is_extra_state(key)}
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
        extra_state_of(held),
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
        if value and is_averaged(place) and all(isinstance(each, Tensor) for each in value):
            yield _Found(place, {}, series=tuple(value))
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return
    tensors = _state_in(value)
    if tensors:
        versions = versions_of(value)
        yield _Found(place, tensors, versions=versions)
        for head, averaged, may_be_swapped in joined(tensors):
            inner = f"{place}.{head}" if place else head
            yield _Found(inner, averaged, versions=versions, may_be_swapped=may_be_swapped)
    named = {key: each for key, each in value.items() if isinstance(key, str) and not _TRAINING.search(key)}
    parts = {key: each for key, each in named.items() if isinstance(each, dict) and _state_in(each)}
    if len(parts) + bool(tensors) > 1:
        yield _Found(place, {}, parts={**({"": tensors} if tensors else {}), **parts})
    for key, each in value.items():
        if isinstance(key, str | int) and not _is_numbers(each) and not is_extra_state(str(key)):
            yield from _candidates(each, f"{place}.{key}" if place else str(key), depth + 1)


def _state_in(value: Mapping[Any, Any]) -> dict[str, Any]:
    """The tensors of a dictionary by their keys, with extra state beside them; empty for what an optimizer keeps."""
    tensors = {key: each for key, each in value.items() if isinstance(key, str) and _is_numbers(each)}
    if not tensors or _MOMENTS & tensors.keys():
        return {}
    return {
        key: each for key, each in value.items() if key in tensors or (isinstance(key, str) and is_extra_state(key))
    }


def _named_in_order(found: _Found, orders: Sequence[Sequence[str]], expected: Expected | None) -> _Found:
    """The same weights; a list of averages under the names of the network's parameters, where it fits them."""
    named = in_order(found.series, orders, expected) if found.series and expected is not None else {}
    return replace(found, tensors=named) if named else found


def _completed(chosen: _Found, found: Sequence[_Found], expected: Expected) -> _Found:
    """A moving average of some of the weights, with the rest from the trained weights beside it.

    Only where all that it holds fits, and some of the network's tensors lack.
    """
    numbers = {key for key, shape in expected.items() if shape is not None}
    if not numbers - chosen.tensors.keys() or not chosen.tensors.keys() <= expected.keys():
        return chosen
    others = [each for each in found if each.tensors and each.place != chosen.place and not each.holds_average]
    scored = [_scored(each, expected, False) for each in others if not each.may_be_swapped]
    beside = max(scored, key=lambda each: (each.score, each.place in _USUAL), default=chosen)
    rest = {key: each for key, each in beside.tensors.items() if key in expected}
    state = {key: chosen.tensors.get(key, each) for key, each in rest.items()}
    return replace(chosen, tensors={**state, **chosen.tensors}, versions=chosen.versions or beside.versions)


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

    Without ``average`` a moving average is taken if there is nothing else; None takes anything. Parts of a network are
    taken only where they fit better than any single dictionary.
    """
    for wanted in (average,) if average else (average, None):
        scored = [_scored(each, expected, wanted) for each in found if wanted is not False or not each.is_averaged]
        whole = max((each.score for each in scored if not each.parts), default=(0, 0))
        best = max((each.score for each in scored), default=(0, 0))
        if any(best):
            break
    alike = [each for each in scored if each.score == best and (best > whole) == bool(each.parts)]
    usual = [each for place in _USUAL for each in alike if each.place == place]
    if not any(best) and average:
        series = [f"{each.place!r} (a list of {len(each.series)} tensors)" for each in found if each.series]
        unfit = f", and {listed(series)}, which do not fit its parameters in their order" if series else ""
        raise CheckpointError(
            f"{path} holds no moving average of the weights under a usual name; it holds {_listed(found)}{unfit}"
        )
    if len(alike) > 1 and not usual and any(best):
        what = "several networks" if expected is None else "several networks that fit"
        raise SeveralNetworksError(f"{path} holds {what}: {_listed(alike)}")
    chosen = (usual or alike)[0]
    if any(best) and len(chosen.prefixes) > 1:
        keys = listed([repr(each.removesuffix(".")) for each in chosen.prefixes])
        raise SeveralNetworksError(f"{path} holds the network more than once, behind the keys {keys}")
    if average and chosen.may_be_swapped:
        beside = chosen.place.rpartition(".")[0] or "the top level"
        raise SeveralNetworksError(f"{path} {SWAPPED_OR_NOT} {chosen.place!r} or {beside!r}")
    return chosen


def _scored(found: _Found, expected: Expected | None, average: bool | None) -> _Found:
    """The same weights with how well they serve; under a network's keys, where these are known.

    Below the place of a moving average, every key counts as averaged unless some are so by their own names.
    """
    if (average and found.average is False) or (found.series and not found.tensors):
        return found
    if expected is None:
        if found.parts or (average and not found.holds_average):
            return found
        kernels = any(value.ndim > 2 for key, value in found.tensors.items() if not is_extra_state(key))
        return replace(found, score=(1 + kernels, int(kernels and _TRAINING.search(found.place) is None)))
    if found.parts:
        return found if average and not found.holds_average else _joined_parts(found, expected, average)
    numbers = {key: _tensor(value) if isinstance(value, np.ndarray) else value for key, value in found.tensors.items()}
    fitted = fit_keys(numbers, expected, averaged=average)
    if average and found.holds_average and not any(fitted.matched):
        fitted = fit_keys(numbers, expected)
    tensors, score, prefixes, beside, names = fitted
    versions = renamed(found.versions, names)
    return replace(found, tensors=tensors, versions=versions, score=score, prefixes=prefixes, beside=beside)


_SUFFIX = re.compile(r"_?(state_?dict|state|weights|params|model|net)$")


def _joined_parts(found: _Found, expected: Expected, average: bool | None) -> _Found:
    """The state dicts of a network's parts as one, each behind the name of its part where the network has such a part.

    ``backbone_state_dict`` is of the part ``backbone``, too.
    """
    children = {key.partition(".")[0] for key in expected if "." in key}
    tensors: dict[str, Any] = {}
    versions: dict[str, Mapping[str, object]] = {}
    score, beside = (0, 0), list[str]()
    for part, state in found.parts.items():
        if average is False and is_averaged(part):
            continue
        child = next((name for name in (part, _SUFFIX.sub("", part)) if name in children), "")
        inner = {key.removeprefix(f"{child}."): expected[key] for key in expected if key.startswith(f"{child}.")}
        own = {key: _tensor(each) if isinstance(each, np.ndarray) else each for key, each in _state_in(state).items()}
        inside = fit_keys(own, inner)
        fitted, prefix = (inside, f"{child}.") if any(inside.matched) else (fit_keys(own, expected), "")
        named = {f"{prefix}{key}": each for key, each in fitted.tensors.items()}
        foreign = {key for key in named if key not in expected and key.partition(".")[0] not in children}
        beside += [f"{part}.{key}" for key in (*sorted(foreign), *fitted.beside)]
        if tensors.keys() & (named.keys() - foreign):
            return found  # two of one part
        tensors |= {key: each for key, each in named.items() if key not in foreign}
        names = {key: f"{prefix}{name}" for key, name in fitted.names.items()}
        versions |= renamed(versions_of(state), names) or {}
        score = (score[0] + fitted.matched[0], score[1] + fitted.matched[1])
    return replace(found, tensors=tensors, versions=versions or None, score=score, prefixes=("",), beside=tuple(beside))


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
    named = [(repr(each.place) if each.place else "the top level", len(each.tensors)) for each in found if each.tensors]
    return listed([f"{place} ({count} tensors)" for place, count in named])
