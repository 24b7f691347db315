"""The converted network that a picture is about: a folder that ``convert`` wrote, or a checkpoint, converted here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...convert.errors import CheckpointError, Problem
from ...convert.files.checkpoint import Opening
from ...convert.files.folder import converted_in
from ...convert.files.open import open_network
from ...convert.files.write import REPORT
from ...convert.layer.layer import SelfAttention
from ...convert.layer.positions import check_alpha
from ...convert.model.convert import convert_model
from ...convert.model.report import Report
from ...convert.plain import path_in, read_json
from ...convert.preprocessing import Preprocessing


@dataclass(frozen=True)
class Subject:
    """A converted network and its report."""

    model: nn.Module  # in eval mode
    report: Report  # the report on attention layers and remaining convolutions
    files: tuple[Path, ...] = ()  # the files that it was read from
    preprocessing: Preprocessing | None = None  # its preprocessing in training, where that is known


def load_subject(path: Path, opening: Opening) -> Subject:
    """Reads a converted network, or reads a CNN and converts what can be converted.

    Raises:
        ConversionError: The path cannot be read, does not fit, or holds nothing to convert.
    """
    path = converted_in(path)
    network = open_network(path, opening)
    if not network.is_converted:
        made, report = convert_model(network.cnn(), inplace=True, skip_unsupported=True)
        return Subject(made, report.noted(network.notes, network.originals), network.files, network.preprocessing)
    model = network.attention()
    report = Report.of(model)
    if (path / REPORT).is_file():
        skipped, notes = _recorded(path_in(path, REPORT))
        report = replace(report, skipped=skipped).noted(notes)
    return Subject(model, report, network.files, network.preprocessing)


def set_alpha(model: nn.Module, alpha: float) -> None:
    """Gives all heads of all attention layers this locality strength.

    Raises:
        ConversionError: It is not positive and finite in a layer's precision.
    """
    layers = [module for module in model.modules() if isinstance(module, SelfAttention)]
    for layer in layers:
        check_alpha(alpha, layer.regime.dtype)
    with torch.no_grad():
        for layer in layers:
            layer.set_positions(alpha=alpha)


def _recorded(path: Path) -> tuple[tuple[Problem, ...], dict[str, str]]:
    """The convolutions that the report in a folder says were left, and its notes by the names of the layers."""
    try:
        report: Any = read_json(path)
        skipped = tuple(Problem(str(entry["name"]), str(entry["reason"])) for entry in report["skipped"])
        noted = [entry for entry in report["layers"] if entry.get("note") is not None]
        return skipped, {str(entry["names"][0]): str(entry["note"]) for entry in noted}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as the report of a conversion") from error
