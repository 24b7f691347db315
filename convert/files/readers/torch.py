"""Reads what ``torch.save`` wrote, as data: by ``torch.load`` with ``weights_only``, which calls nothing in a file.

PyTorch refuses a file that names a class that it does not know. Ordinary checkpoints do: an argparse.Namespace, a path,
a configuration. Each name that it refuses is mapped to a class of its own that does nothing (``inert.py``), so the
weights beside it are read. The modules of torch.nn, and the activation functions that they store, are mapped to
themselves.
"""

from __future__ import annotations

import pickle
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

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
_REFUSED = (  # messages of PyTorch's reader, and what then stands for the name
    (None, re.compile(r"Unsupported global: GLOBAL (\S+) was not an allowed global")),
    (dict, re.compile(r"Can only SETITEMS? .*got <class 'inert\.(.+)'>")),
    (list, re.compile(r"Can only (?:append|extend) .*got <class 'inert\.(.+)'>")),
)


def read_torch(path: Path) -> object:
    """Data in a file of ``torch.save``'s: containers, tensors, modules of torch.nn and stand-ins.

    Raises:
        CheckpointError: The file is damaged, or names functions that PyTorch never reads.
        TrustNeededError: It is of a form that only PyTorch's unsafe reader knows.
    """
    known: dict[str, Any] = dict(_FUNCTIONS)
    tried: set[tuple[str, type | None]] = set()
    while True:
        try:
            named = [(stand, name) for name, stand in known.items()]
            with safe_globals([*named, *_KINDS]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about other protocols; unreadable files are refused
                return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except Exception as error:
            refused = {(name, kind) for kind, form in _REFUSED for name in form.findall(str(error))} - tried
            if not refused:
                raise _refusal(path, error) from error
            tried |= refused
            full = {name if "." in name else f"builtins.{name}": kind for name, kind in refused}
            known |= {name: _of_torch(name) or stand_in(name, kind) for name, kind in full.items()}


def _of_torch(name: str) -> Any:
    """The class of torch.nn's modules that has a name, or None."""
    place, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(place), last, None) if place.startswith("torch.nn.modules.") else None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def _refusal(path: Path, error: Exception) -> CheckpointError:
    """The error for a file that PyTorch refuses to read."""
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
