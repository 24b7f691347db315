"""Reads what ``torch.save`` wrote, as data: by ``torch.load`` with ``weights_only``, which calls nothing in a file.

PyTorch refuses a file that names a class that it does not know. Ordinary checkpoints do: an argparse.Namespace, a path,
a configuration. Each such name is mapped to a class of its own that does nothing (``inert.py``), so the weights beside
it are read. The modules of torch.nn, and the activation functions that they store, are mapped to themselves.
"""

from __future__ import annotations

import _compat_pickle
import pickle
import pickletools
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.serialization import safe_globals

from ...errors import CheckpointError, TrustNeededError
from .inert import stand_in

_MAKERS: list[Any] = [np.ones(1).__reduce__()[0], np.float64(1).__reduce__()[0]]  # they make arrays and numbers
_FUNCTIONS: dict[str, Any] = {
    **{f"torch.nn.functional.{name}": getattr(F, name) for name in ("relu", "silu", "leaky_relu", "elu")},
    "torch._C._nn.gelu": F.gelu,
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    **{f"numpy.{core}.multiarray.{made.__name__}": made for core in ("core", "_core") for made in _MAKERS},
}
_KINDS = [getattr(np.dtypes, name) for name in np.dtypes.__all__]  # classes of NumPy's dtypes, which no file names
_FILLED = {
    dict: re.compile(r"Can only SETITEMS? .*got <class 'inert\.(.+)'>"),
    list: re.compile(r"Can only (?:append|extend) .*got <class 'inert\.(.+)'>"),
}
_STEPS = 4  # pickles before the object in the form before PyTorch 1.6: number, version, system, object


def read_torch(path: Path) -> object:
    """Data in a file of ``torch.save``'s: containers, tensors, modules of torch.nn and stand-ins.

    Raises:
        CheckpointError: The file is damaged, or names functions that PyTorch never reads.
        TrustNeededError: It is of a form that only PyTorch's unsafe reader knows.
    """
    try:
        names = sorted(_names(path))
    except Exception as error:
        raise _damaged(path, error) from error
    filled: dict[str, type] = {}
    for _ in range(len(names) + 1):
        known = [(_known(name) or stand_in(name, filled.get(name)), name) for name in names]
        try:
            with safe_globals([*known, *_KINDS]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about other protocols; unreadable files are refused
                return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except Exception as error:
            found = {name: kind for kind, form in _FILLED.items() for name in form.findall(str(error))}
            if not found or found.keys() <= filled.keys():
                raise _refused(path, error) from error
            filled |= found
    raise CheckpointError(f"{path} cannot be read as data")


def _known(name: str) -> Any:
    """The class or function that a name may stand for, or None: what torch.nn's modules are made of."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    place, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(place), last, None) if place.startswith("torch.nn.modules.") else None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def _names(path: Path) -> Iterator[str]:
    """Every class and function that the pickle of a file names."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            (entry,) = [name for name in archive.namelist() if name.partition("/")[2] == "data.pkl"]
            with archive.open(entry) as file:
                yield from _named(file)
        return
    with path.open("rb") as file:
        for _ in range(_STEPS):
            yield from _named(file)


def _named(file: IO[bytes]) -> Iterator[str]:
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "GLOBAL":
            place, _, name = str(argument).partition(" ")
            place, name = _compat_pickle.NAME_MAPPING.get(
                (place, name), (_compat_pickle.IMPORT_MAPPING.get(place, place), name)
            )
            yield f"{place}.{name}"


def _refused(path: Path, error: Exception) -> CheckpointError:
    """The error for a file that PyTorch refuses to read."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        return CheckpointError(f"{path} cannot be read: {error.strerror}")
    if (blocked := re.search(r"GLOBAL (\S+) whose module \S+ is blocked", text)) is not None:
        return CheckpointError(f"{path} is refused: it asks for {blocked[1]}, which no checkpoint needs")
    if isinstance(error, pickle.UnpicklingError) and re.search(r"Unsupported operand|persistent_load", text):
        return TrustNeededError(f"{path} was pickled in a way that only the reader that runs code understands")
    return _damaged(path, error)


def _damaged(path: Path, error: Exception) -> CheckpointError:
    if isinstance(error, OSError) and error.strerror:
        return CheckpointError(f"{path} cannot be read: {error.strerror}")
    return CheckpointError(f"{path} is damaged, incomplete or no checkpoint ({type(error).__name__} while reading it)")
