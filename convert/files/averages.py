"""Moving averages of weights in checkpoints: which of two sets of weights is the average, and where each lies.

A key's name alone does not say it. So a library is known by what it writes beside the weights:

library                             the average                            the weights that were trained
MMEngine's EMAHook                  ``state_dict``                         ``ema_state_dict``, behind ``module.``
Lightning's WeightAveraging         ``state_dict``                         ``current_model_state``
MMCV's EMAHook, before an epoch     keys ``ema_backbone_conv1_weight``     the keys beside them
MMCV's EMAHook, after an epoch      the keys beside them                   keys ``ema_backbone_conv1_weight``
latent diffusion's LitEma           keys ``model_ema.backboneconv1weight`` the keys beside them
torch_ema, diffusers, score_sde     a list, ``shadow_params``              another dictionary
NeMo's optimizer                    a list, ``ema``                        ``state_dict``
ema_pytorch                         keys ``ema_model.``                    keys ``online_model.``
timm, ultralytics, own code         a place with a usual name              another place

MMCV's hook swaps both sets at the end of each epoch, before or after the file is written as its priority says, and the
file does not tell. So both are named, and the caller chooses. A list has the parameters in the network's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Size, Tensor

from ..tensors import place as place_of

_AVERAGED = re.compile(r"(^|_)(ema|swa|averaged?|avg|shadow)\d*(_|$)", re.IGNORECASE)
_TRAINED = re.compile(r"(^|_)(collected|saved|backup|online|orig|original|raw)(_|$)", re.IGNORECASE)
_MMCV = "ema_"
SWAPPED_OR_NOT = (
    "was written by MMCV, whose hook swaps the average and the trained weights at the end of an epoch, before or after "
    "the file is written: the average is under"
)


def is_averaged(place: str) -> bool:
    """Whether a key, or a dotted path of keys, has a usual name of a moving average of weights.

    What an average keeps of the trained weights (``ema.collected_params``) is none.
    """
    parts = place.removesuffix(".").split(".")
    found = [number for number, part in enumerate(parts) if _AVERAGED.search(part) is not None]
    return bool(found) and not any(_TRAINED.search(part) for part in parts[found[0] :])


def swapped(value: Mapping[Any, Any]) -> dict[str, bool]:
    """Places of a checkpoint at which a library is known to keep the average (True) and the trained weights (False)."""
    if {"state_dict", "current_model_state"} <= value.keys():  # of Lightning
        return {"state_dict": True, "current_model_state": False}
    meta, average = value.get("meta"), value.get("ema_state_dict")
    if "state_dict" in value and isinstance(average, Mapping):
        is_named = isinstance(meta, Mapping) and "mmengine_version" in meta
        counted = "steps" in average and any(str(key).startswith("module.") for key in average)
        if is_named or counted or "message_hub" in value:  # of MMEngine
            return {"state_dict": True, "ema_state_dict": False}
    return {}


def joined(tensors: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Moving averages beside the weights, under names whose dots are left out or underscores.

    Yields:
        The part of the keys that names the average, the weights with the averaged ones in their places, and whether
        the two may be swapped.
    """
    heads = dict.fromkeys(key.partition(".")[0] for key in tensors if "." in key)
    forms = [(f"{head}.", "") for head in heads if is_averaged(head)] + [(_MMCV, "_")]
    for start, between in forms:
        plain = {key: each for key, each in tensors.items() if not key.startswith(start) and isinstance(each, Tensor)}
        words = {key: key.split(".") for key in plain}
        firsts = {key: range(1 if between else len(own)) for key, own in words.items()}
        names = {between.join(words[key][first:]): key for key, own in firsts.items() for first in own}
        averaged = {key: tensors[start + name] for name, key in names.items() if start + name in tensors}
        is_whole = len(averaged) == len(tensors) - len(plain)
        if averaged and (is_whole or not between):
            shared = {place_of(plain[key]): value for key, value in averaged.items()}
            state = {key: averaged.get(key, shared.get(place_of(value), value)) for key, value in plain.items()}
            yield start.rstrip("._"), state, bool(between)


def in_order(
    series: Sequence[Tensor], orders: Sequence[Sequence[str]], expected: Mapping[str, Size | None]
) -> dict[str, Tensor]:
    """A list of averages under the names of a network's parameters; empty where they do not fit in any order."""
    for names in orders:
        shapes = [expected.get(name) for name in names]
        if [each.shape for each in series] == shapes:
            return dict(zip(names, series, strict=True))
    return {}
