"""Programs: files that PyTorch can only read by running their code, to which the caller has consented.

Raises:
    CheckpointError: By every function here, if the file is damaged or needs a package that is not installed.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import torch
from torch import nn

from ...errors import CheckpointError, first_line
from ...model.calls import calls_as_modules
from .sniff import Kind


def run_program(path: Path, kind: Kind) -> object:
    """Reads a file by torch's or Python's own reader, which runs what the file says.

    Returns:
        A network, with its convolutions as modules; for a pickle, its contents.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its internals
            if kind is Kind.PROGRAM:
                return _as_network(torch.export.load(path).module())
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


def _as_network(graph: nn.Module) -> nn.Module:
    """A graph of torch.export's with modules for its convolutions; it has a mode like any module."""
    for name in ("train", "eval"):  # these refuse; the graph's own operations say in which mode they are
        graph.__dict__.pop(name, None)
    return calls_as_modules(graph).model
