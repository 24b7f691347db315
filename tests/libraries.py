"""The libraries whose files are read, imported where they are installed: make test-libraries."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import torch
from torch import nn

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


def timm_network(name: str = "test_resnet", **options: Any) -> nn.Module:
    network: nn.Module = imported("timm").create_model(name, **{"num_classes": 3, **options})
    return network


def torchvision_network(name: str = "shufflenet_v2_x0_5") -> nn.Module:
    network: nn.Module = imported("torchvision.models").get_model(name, weights=None, num_classes=3)
    return network


def transformers_network(kind: str = "ResNet", **options: Any) -> nn.Module:
    transformers = imported("transformers")
    options = options or {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}
    config = getattr(transformers, f"{kind}Config")(num_labels=3, **options)
    network: nn.Module = getattr(transformers, f"{kind}ForImageClassification")(config)
    return network
