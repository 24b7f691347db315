"""Programs: files that PyTorch can only read by running their code, to which the caller has consented.

Raises:
    CheckpointError: By every function here, if the file is damaged or needs a package that is not installed.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import CheckpointError, first_line
from ...model.calls import calls_as_modules
from ...size import USUAL_SIZES
from .sniff import Kind

_SCRIPTED = tuple(f"Conv{kind}{axes}d" for kind in ("", "Transpose") for axes in (1, 2, 3))


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
            if kind is Kind.SCRIPT:
                return _unscripted(torch.jit.load(path, map_location="cpu"))
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


def _unscripted(script: torch.jit.ScriptModule) -> nn.Module:
    """The graph of a TorchScript program, for images of the usual size."""
    from torch._export.converter import TS2EPConverter

    convs: list[Any] = [module for module in script.modules() if getattr(module, "original_name", "") in _SCRIPTED]
    if not convs:
        raise CheckpointError("the TorchScript program has no convolution of torch.nn")
    weight: Tensor = convs[0].weight
    size = USUAL_SIZES[weight.ndim - 2]
    channels = (
        weight.shape[0] if "Transpose" in convs[0].original_name else weight.shape[1] * getattr(convs[0], "groups", 1)
    )
    example = torch.zeros(2, channels, *size, dtype=weight.dtype)
    with torch.no_grad():
        program = TS2EPConverter(script.eval(), (example,)).convert()
    graph = program.module(check_guards=False)
    for name in dict(script.named_parameters()):  # all are buffers now
        place, _, own = name.rpartition(".")
        owner = graph.get_submodule(place)
        if own in owner._buffers:
            value = owner._buffers.pop(own)
            owner.register_parameter(own, None if value is None else nn.Parameter(value))
    return _as_network(graph)
