"""The libraries whose files are read, imported where they are installed: make test-libraries."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_DECLARED: list[torch.library.Library] = []  # operators live as long as their library


def imported(name: str) -> Any:
    """A module of timm, torchvision, transformers or diffusers."""
    with warnings.catch_warnings(action="ignore"):  # their own, about each other
        _import_torchvision()
        return importlib.import_module(name)


def _import_torchvision() -> None:
    """Imports torchvision, of which not every build has operators for every build of torch: it needs two declared."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        for module in [module for module in sys.modules if module.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        _DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in ("nms", "qnms"):
            _DECLARED[-1].define(f"{operator}{_BOXES}")
        importlib.import_module("torchvision")
