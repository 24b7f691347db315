"""Loads weights into a network, and says why they do not fit.

Raises:
    CheckpointError: By every function here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _IncompatibleKeys
from torch.nn.parameter import is_lazy

from ..errors import CheckpointError, ClassesDifferError, TrustNeededError, first_line, listed
from ..tensors import Versions, have_same_bytes, versions_of, with_versions
from .pickles import inert_kinds
from .readers import FLOAT_STATE, quantised, quantised_keys
from .state import differing, held_state, is_extra_state, is_loaded, tensors_of

_COUNTER = "num_batches_tracked"  # batch normalisation had none before PyTorch 0.4.1
_STATISTICS = ".running_mean"
_FOLDED = (
    "it has none of the architecture's batch norms, which an exporter may have folded into the convolutions: then the "
    "architecture must have none"
)
_BYTES = (torch.int8, torch.uint8)
LEFT_BY_TOOLS = {"total_ops", "total_params", "n_averaged", "position_ids"}  # left beside weights by thop and torch


def load_into(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    versions: Versions = None,
    assign: bool = False,
    beside: Sequence[str] | None = None,
    extra_state: Mapping[str, Any] | None = None,
    is_ours: bool = False,
) -> tuple[str, ...]:
    """Loads every weight into a model, under the model's keys or those that its own hooks translate.

    Values are converted to the model's dtype and device; with ``assign``, to its dtype alone, and not copied if they
    have it. Only ``num_batches_tracked`` may be missing, as in files that are older than it, and a second name of a
    tensor that is there under its first. After an error the model is not to be used.

    Classes translate what older versions of theirs wrote by the versions that are given, as ``torch.load`` gave them.

    With ``beside``, the file's other keys, which are named if a key is missing, those of no part of the model, as of a
    loss beside it, and counters that tools leave are passed over and returned; without it, none are. Extra state of
    a module that has none is refused, as PyTorch refuses it. Where the model
    has integers or truth values, other kinds are taken whose numbers are the same.

    Extra state goes to the modules as PyTorch gives it. What a class's own ``load_state_dict`` leaves as it was is
    refused. With ``is_ours``, for weights that ``complete_state`` gave, the modules load them whatever their network's
    class does, and must then hold what was given.

    Raises:
        TrustNeededError: Extra state holds objects of classes whose code is not run.
        CheckpointError: A key is missing or unexpected, a shape or a kind of dtype (floating, complex,
            integer, boolean) differs, tensors that are one in the model differ in the file, or the model is lazy or,
            without ``assign``, on the meta device.
    """
    # what the model wants, and what the file gives: a shared tensor under each of its names
    wanted, sharing = {**model.state_dict(), **held_state(model)}, tensors_of(held_state(model, keep_vars=True))
    extra = extra_state or {}
    first = {id(tensor): key for key, tensor in reversed(sharing.items()) if key in tensors}
    given = {key: tensors[first[id(tensor)]] for key, tensor in sharing.items() if id(tensor) in first} | {**tensors}
    # refuse other shapes and kinds, shared tensors with two values, and state that is code
    checked = (_mismatch(key, given[key], wanted[key], assign) for key in given if key in wanted)
    problems = [text for text in checked if text is not None]
    problems += [
        f"{first[id(tensor)]!r} and {key!r} are one tensor, with two values"
        for key, tensor in sharing.items()
        if key in tensors and not have_same_bytes(tensors[key], tensors[first[id(tensor)]])
    ]
    if problems:
        raise _other_classes(path, model, given, wanted) or _unfit(path, given, wanted, problems)
    if unknown := {key: kinds for key in extra if key in wanted and (kinds := inert_kinds(extra[key]))}:
        fault = listed([f"{key!r} ({listed(kinds)})" for key, kinds in unknown.items()])
        raise TrustNeededError(f"{path} holds extra state of classes whose code is not run: {fault}")
    # load, by the class's own way unless the file is ours
    dtypes = {key: wanted[key].dtype for key in given if isinstance(wanted.get(key), Tensor)}
    weights = {key: value.to(dtypes.get(key, value.dtype)) for key, value in given.items()} if assign else given
    state = with_versions({**weights, **extra}, versions)
    is_own = getattr(model.load_state_dict, "__func__", None) is not nn.Module.load_state_dict and not is_ours
    before = {key: value.clone() for key, value in tensors_of(held_state(model)).items() if is_own and key in given}
    with _refused_by_classes(path):
        load = partial(nn.Module.load_state_dict, model) if is_ours else model.load_state_dict
        found: Any = load(state, strict=False, **({"assign": True} if assign else {}))
    if not (hasattr(found, "missing_keys") and hasattr(found, "unexpected_keys")):  # of a class's own
        found = _IncompatibleKeys([key for key in sharing if key not in given], [])
    # see that every value arrived, whatever the class's own way did
    held = tensors_of(held_state(model)) if is_own else {}
    kept = [key for key, old in before.items() if have_same_bytes(held[key], old) and not is_loaded(old, given[key])]
    if is_ours and dict(versions or {}) == dict(versions_of(model.state_dict()) or versions or {}):
        kept += differing(model, given)
    if kept:
        fault = f"{type(model).__name__} does not load {listed([repr(key) for key in kept])} as it stands in the file"
        raise CheckpointError(f"{path} does not fit the architecture: {fault}")
    # name missing and unexpected keys; some may be passed over
    missing = [key for key in found.missing_keys if key.rpartition(".")[2] != _COUNTER]
    children = {name.partition(".")[0] for name in wanted}
    modules = {name for name, _ in model.named_modules()}
    passed = tuple(
        key
        for key in found.unexpected_keys
        if beside is not None
        and (key.partition(".")[0] not in children or key.rpartition(".")[2] in LEFT_BY_TOOLS)
        and not (is_extra_state(key) and key.rpartition(".")[0] in modules)
    )
    unexpected = [key for key in found.unexpected_keys if key not in passed]
    if missing or unexpected:
        others = (*passed, *(beside or ())) if missing else ()
        left_out = set(missing) & sharing.keys() - model.state_dict().keys()
        why = f", as the state dict of {type(model).__name__} leaves it out"
        lacking = [f"{key!r} is missing{why if key in left_out else ''}" for key in missing]
        norms = {key.removesuffix(_STATISTICS) for key in wanted if key.endswith(_STATISTICS)}
        if missing and {key.rpartition(".")[0] for key in missing} == norms:
            lacking = [_FOLDED, *lacking]
        raise _unfit(path, given, wanted, lacking, [*unexpected, *others])
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


_OF_CLASSES = re.compile("class|label")


def _other_classes(
    path: Path, model: nn.Module, given: Mapping[str, Tensor], wanted: Mapping[str, object]
) -> CheckpointError | None:
    """An error where all that does not fit is the number of the last layer's outputs; else None."""
    pairs = {key: (tensor, wanted[key]) for key, tensor in given.items()} if given.keys() == wanted.keys() else {}
    other = {key: (one, two) for key, (one, two) in pairs.items() if isinstance(two, Tensor) and one.shape != two.shape}
    layers, last = {key.rpartition(".")[0] for key in other}, list(wanted)[-1].rpartition(".")[0]
    counts = {(len(one), len(two)) for one, two in other.values() if one.ndim and two.ndim}
    if layers != {last} or len(counts) != 1 or any(one.shape[1:] != two.shape[1:] for one, two in other.values()):
        return None
    ((found, expected),) = counts
    fault = f"{path} has {found:,} classes, the architecture {expected:,}: '{last}' has as many outputs"
    names = inspect.signature(type(model)).parameters
    return ClassesDifferError(fault, found, next((name for name in names if _OF_CLASSES.search(name)), None))


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
    fault = "; ".join([*([listed(problems, "; ")] if problems else []), *held])
    fitting = sum(_mismatch(key, given[key], wanted[key], assign=True) is None for key in given if key in wanted)
    lacking = sum(key not in given and key.rpartition(".")[2] != _COUNTER for key in wanted)
    extra = len(given.keys() - wanted.keys())
    counts = f"{fitting:,} of {len(wanted):,} keys fit, missing {lacking:,}, left over {extra:,}"
    return CheckpointError(f"{path} does not fit the architecture: {counts}: {fault}")


def _mismatch(key: str, got: Tensor, wanted: object, assign: bool) -> str | None:
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
