"""Programs: files that PyTorch can only read by running their code, to which the caller has consented.

Raises:
    CheckpointError: By every function here, if the file is damaged or needs a package that is not installed.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import fx, nn

from ...errors import CheckpointError, first_line
from ...network.calls import calls_as_modules, calls_of_integers
from .quantised import FLOAT_EXPORT, quantised, quantised_operations
from .sniff import Kind


def check_float(path: Path) -> None:
    """Refuses a program of torch.export whose operations are on quantised numbers, by its text; nothing is run."""
    text = ""
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:  # torch's reader tells that one is damaged
        names = [name for name in archive.namelist() if name.endswith(".json")]
        text = " ".join(archive.read(name).decode(errors="replace") for name in names)
    if signs := quantised_operations(text):
        raise quantised(path, FLOAT_EXPORT, signs)


def run_program(path: Path, kind: Kind) -> object:
    """Reads a file by torch's or Python's own reader, which runs what the file says.

    Returns:
        A network, with its convolutions as modules; for a pickle, its contents.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its internals
            if kind is Kind.PROGRAM:
                return _as_network(torch.export.load(path).module(), path)
            if kind is Kind.PICKLE:
                with path.open("rb") as file:
                    return pickle.load(file)
            return torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        needed = f"{path} needs the module {error.name}, which cannot be imported here"
        raise CheckpointError(f"{needed}; the environment variable PYTHONPATH must hold its folder") from error
    except (ImportError, AttributeError) as error:
        raise CheckpointError(f"{path} needs code that cannot be imported here ({first_line(error)})") from error
    except CheckpointError:
        raise
    except Exception as error:  # whatever the file's code raises
        raise CheckpointError(f"{path} cannot be run: {first_line(error)[:300]}") from error


def _as_network(graph: fx.GraphModule, path: Path) -> nn.Module:
    """A graph of torch.export's with modules for its convolutions; it has a mode like any module."""
    if signs := calls_of_integers(graph):
        raise quantised(path, FLOAT_EXPORT, signs)
    for name in ("train", "eval"):  # these refuse; the graph's own operations say in which mode they are
        graph.__dict__.pop(name, None)
    return calls_as_modules(graph).model
