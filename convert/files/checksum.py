"""A SHA-256 over what a folder says of its layers and over their tensors, so that a change of one can be seen.

It is no signature: whoever changes a folder on purpose can write it anew. What nothing checks is not in it: engines,
versions, what was measured, and the bound of the whole network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_REPORT = ("attention", "comparison", "network", "sha256", "version")
_LAYER = ("engine", "literal")
_CONFIG = ("versions",)


def checksum(report: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256, in hexadecimal digits.

    Args:
        report: What ``report.json`` holds.
        config: What ``config.json`` holds.
        tensors: What the weights' file holds.
    """
    said = {key: value for key, value in report.items() if key not in _REPORT}
    if isinstance(said.get("layers"), list):
        said["layers"] = [_without(layer, _LAYER) for layer in said["layers"]]
    text = json.dumps([said, _without(config, _CONFIG)], sort_keys=True)
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode("utf-8", "surrogatepass"))
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _without(data: Any, names: tuple[str, ...]) -> Any:
    return {key: value for key, value in data.items() if key not in names} if isinstance(data, Mapping) else data
