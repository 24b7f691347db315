"""Files of ``torch.save``, read as data, and the modules that they hold.

``torch.load`` with ``weights_only`` calls nothing in a file, and refuses a file that names a class that it does not
know. Ordinary checkpoints do: an argparse.Namespace, a path, a configuration. Each such name is mapped to a class of
its own that does nothing (``Inert``), so the weights beside it are read. The modules of torch.nn, and the activation
functions that they store, are mapped to themselves. A pickled module of an unknown class gives its tensors.
"""

from __future__ import annotations

import itertools
import pickle
import re
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.serialization import safe_globals

from ..errors import CheckpointError, TrustNeededError

_MAKERS: list[Any] = [np.ones(1).__reduce__()[0], np.float64(1).__reduce__()[0]]  # they make arrays and numbers
_FUNCTIONS: dict[str, Any] = {
    **{f"torch.nn.functional.{name}": getattr(F, name) for name in ("relu", "silu", "leaky_relu", "elu")},
    "torch._C._nn.gelu": F.gelu,
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    **{f"numpy.{core}.multiarray.{made.__name__}": made for core in ("core", "_core") for made in _MAKERS},
}
_KINDS = [getattr(np.dtypes, name) for name in np.dtypes.__all__]  # classes of NumPy's dtypes, which no file names
_REFUSED = (  # messages of PyTorch's reader, and what then stands for the name
    (None, re.compile(r"Unsupported global: GLOBAL (\S+) was not an allowed global")),
    (dict, re.compile(r"Can only SETITEMS? .*got <class 'inert\.(.+)'>")),
    (list, re.compile(r"Can only (?:append|extend) .*got <class 'inert\.(.+)'>")),
)


class Inert:
    """Stands for an object of a class, or the result of a function, that a pickle names: it does nothing.

    Attributes:
        kind: The name, with its module's.
        filled_as: dict or list where the pickle puts entries or items into its objects, which PyTorch does with those
            of Python's own only; then it is one.
        args: Arguments of its construction.
        state: State that it would get afterwards, or None.
    """

    kind = ""
    filled_as: type | None = None
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **_: Any) -> Any:
        """Keeps the arguments; a plain dictionary or list where it is filled."""
        if cls.filled_as is list:
            return []
        if cls.filled_as is dict:
            return OrderedDict(*args) if args and isinstance(args[0], dict) else OrderedDict()
        made = object.__new__(cls)
        made.args = args
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Nested(Inert):
    kind = "a nested class"


class _Attribute(Inert):
    """Stands for getattr, by which a pickle names a class inside a class."""

    def __new__(cls, *_: Any) -> Any:
        return _Nested


def read_torch(path: Path) -> object:
    """Data in a file of ``torch.save``'s: containers, tensors, modules of torch.nn and stand-ins.

    Raises:
        CheckpointError: The file is damaged, or names functions that PyTorch never reads.
        TrustNeededError: It is of a form that only PyTorch's unsafe reader knows.
    """
    known: dict[str, Any] = {**_FUNCTIONS, "inert.nested": _Nested}
    tried: set[tuple[str, type | None]] = set()
    while True:
        try:
            named = [(stand, name) for name, stand in known.items()]
            with safe_globals([*named, *_KINDS]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about other protocols; unreadable files are refused
                return load_torch(path, weights_only=True)
        except Exception as error:
            refused = {(name, kind) for kind, form in _REFUSED for name in form.findall(str(error))} - tried
            if not refused:
                raise _refusal(path, error) from error
            tried |= refused
            full = {name if "." in name else f"builtins.{name}": kind for name, kind in refused}
            known |= {name: _stand_in(name, kind) for name, kind in full.items()}


def load_torch(path: Path, *, weights_only: bool) -> object:
    """The contents of a file of torch.save's, on the CPU; of data, numbers stay in the mapped file where they can."""
    if is_utf8(path):
        is_mapped = weights_only and _is_stored(path)
        return torch.load(path, map_location="cpu", weights_only=weights_only, mmap=is_mapped)
    with path.open("rb") as file:
        return torch.load(file, map_location="cpu", weights_only=weights_only)


def is_utf8(path: Path) -> bool:
    """Whether a path is text in UTF-8, as libraries that open files themselves want it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_stored(path: Path) -> bool:
    """Whether a file is an archive whose records are their own bytes: PyTorch maps compressed ones as they are."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())


def _stand_in(name: str, filled_as: type | None) -> type:
    """The class of torch.nn's modules that has a name, else one that is inert."""
    if name == "builtins.getattr":
        return _Attribute
    place, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(place), last, None) if place.startswith("torch.nn.modules.") else None
    if isinstance(found, type) and issubclass(found, nn.Module):
        return found
    return type(name, (Inert,), {"kind": name, "filled_as": filled_as, "__module__": "inert"})


def _refusal(path: Path, error: Exception) -> CheckpointError:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        return CheckpointError(f"{path} cannot be read: {error.strerror}")
    if (blocked := re.search(r"GLOBAL (\S+) whose module \S+ is blocked", text)) is not None:
        return CheckpointError(f"{path} is refused: it asks for {blocked[1]}, which no checkpoint needs")
    if "must be imported to load" in text:
        return CheckpointError(f"{path} holds tensors that are spread over processes; gather them before saving")
    if isinstance(error, pickle.UnpicklingError) and re.search(r"Unsupported operand|persistent_load", text):
        return TrustNeededError(f"{path} was pickled in a way that only the reader that runs code understands")
    return CheckpointError(f"{path} is damaged, incomplete or no checkpoint ({type(error).__name__} while reading it)")


_PARTS = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (list, tuple, set, frozenset)
_MAX_DEPTH = 64  # modules in modules


def is_module(value: object) -> bool:
    """Whether a value is a module or stands for one."""
    return _state(value) is not None


def pickled_network(root: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The state dict of a network, and the names of classes in it that are not known; without any, it is torch.nn's."""
    tensors: dict[str, Any] = {}
    unknown: dict[str, None] = {}
    for name, module in _walk(root):
        prefix, state = f"{name}." if name else "", _state(module) or {}
        unknown |= dict.fromkeys([module.kind] if isinstance(module, Inert) else _inert_kinds(vars(module)))
        hidden = state.get("_non_persistent_buffers_set") or ()
        own = _positions(state) | dict(state.get("_parameters", ())) | dict(state.get("_buffers", ()))
        tensors |= {f"{prefix}{key}": value for key, value in own.items() if value is not None and key not in hidden}
    return tensors, tuple(unknown)


def kinds_of(root: Any) -> list[str]:
    """Qualified names of a pickled network's classes, and of what else in it is not known, each once."""
    modules = [module for _, module in _walk(root)]
    named = [module.kind if isinstance(module, Inert) else _qualified(type(module)) for module in modules]
    inner = [kind for module in modules if isinstance(module, nn.Module) for kind in _inert_kinds(vars(module))]
    return list(dict.fromkeys([*named, *inner]))


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Modules in the order of ``named_modules``, each under all of its names."""
    pending: list[tuple[str, int, Any]] = [("", 0, root)]
    while pending:
        name, depth, module = pending.pop()
        if depth > _MAX_DEPTH:
            raise CheckpointError(f"the pickled network nests modules more than {_MAX_DEPTH} deep")
        yield name, module
        children = dict((_state(module) or {}).get("_modules", ()))
        pending += [
            (f"{name}.{key}" if name else str(key), depth + 1, child)
            for key, child in reversed(children.items())
            if isinstance(child, nn.Module | Inert)
        ]


def _state(module: Any) -> Mapping[str, Any] | None:
    """The attributes of a module, or None if the value is no module."""
    if isinstance(module, nn.Module):
        return vars(module)
    arguments = [module.state, *module.args] if isinstance(module, Inert) else []
    return next((state for state in arguments if isinstance(state, dict) and set(_PARTS) <= state.keys()), None)


def _positions(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Positions of an attention layer at rest, which holds them as numbers, under the keys of its state dict."""
    numbers: Any = getattr(state.get("_regime"), "state", None)
    is_regime = isinstance(numbers, dict) and {"alpha", "centers", "dtype"} <= numbers.keys()
    if not is_regime or "log_alpha" in dict(state.get("_parameters", ())):
        return {}
    return {name: torch.tensor(numbers[name], dtype=numbers["dtype"], device="cpu") for name in ("alpha", "centers")}


def inert_kinds(value: Any, depth: int = 0) -> list[str]:
    """Names of the classes that stand-ins in containers are of, each once."""
    if isinstance(value, Inert):
        return [value.kind]
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, _CONTAINERS) else []
    found = [kind for each in inner for kind in inert_kinds(each, depth + 1)] if depth < _MAX_DEPTH else []
    return list(dict.fromkeys(found))


def _inert_kinds(state: Mapping[str, Any]) -> Iterator[str]:
    """Names of the unknown classes among the attributes of a module, and in its dictionaries and lists."""
    containers = [each for each in state.values() if isinstance(each, dict | list | tuple)]
    inner = [each.values() if isinstance(each, dict) else each for each in containers]
    own = itertools.chain(state.values(), *inner)
    return (value.kind for value in own if isinstance(value, Inert) and not is_module(value))
