"""The converted network that a picture is about: a folder that ``convert`` wrote, or a checkpoint, converted here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from conv2attn.convert.attention import SelfAttention2d, check_alpha
from conv2attn.convert.errors import ArchitectureError, CheckpointError, Problem
from conv2attn.convert.folder import Architecture, load_converted
from conv2attn.convert.model import convert_model
from conv2attn.convert.network import load_network
from conv2attn.convert.ownership import REPORT
from conv2attn.convert.report import Report


@dataclass(frozen=True)
class Subject:
    """A converted network, and what was converted of it.

    Attributes:
        model: In eval mode.
        report: Which layers are attention, and which convolutions were left.
    """

    model: nn.Module
    report: Report


def load_subject(path: Path, architecture: Architecture | None, *, ema: bool = False) -> Subject:
    """Reads a converted folder, or reads a checkpoint and converts what can be converted.

    Args:
        path: The folder or the file.
        architecture: How the CNN is built; folders of the example networks need none.
        ema: Take the moving average of a checkpoint's weights.

    Raises:
        ConversionError: The path cannot be read, does not fit, or holds nothing to convert.
    """
    if path.is_dir():
        model = load_converted(path, architecture=architecture)
        return Subject(model, Report(Report.of(model).layers, _skipped(path / REPORT), model))
    if not path.exists():
        raise CheckpointError(f"there is no file or folder {path}")
    if architecture is None:
        raise ArchitectureError(f"{path} is read as a checkpoint, which needs --arch: how its network is built")
    network = load_network(path, architecture, ema=ema)
    return Subject(*convert_model(network.model, inplace=True, skip_unsupported=True))


def set_alpha(model: nn.Module, alpha: float) -> None:
    """Gives all heads of all attention layers this locality strength.

    Raises:
        ConversionError: It is not positive and finite in a layer's precision.
    """
    layers = [module for module in model.modules() if isinstance(module, SelfAttention2d)]
    for layer in layers:
        check_alpha(alpha, layer.alpha.dtype)
    with torch.no_grad():
        for layer in layers:
            layer.alpha.fill_(alpha)


def _skipped(path: Path) -> tuple[Problem, ...]:
    """The convolutions that the report in a folder says were left."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["skipped"]
        return tuple(Problem(str(entry["name"]), str(entry["reason"])) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as the report of a conversion") from error
