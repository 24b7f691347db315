"""Outputs of a network as they are: a tensor, or tensors in tuples, lists, dictionaries and dataclasses, by name.

{"out": a, "aux": [b, c]}        out, aux.0, aux.1
ImageClassifierOutput(logits=a)  logits
a                                the one tensor, whose name is empty
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from .errors import ConversionError

_BOXES = "pred_boxes"  # of transformers' detectors
_SCORES = ("logits", "scores", "out", "0")  # of transformers, of torchvision's segmentation; else the first of a tuple


def named_tensors(outputs: Any) -> dict[str, Tensor]:
    """Every tensor that a network returned, by its place; numbers, texts and None are left out.

    Args:
        outputs: What a network returned.

    Raises:
        ConversionError: There is no tensor.
    """
    found: dict[str, Tensor] = {}
    _collect(outputs, "", found)
    if not found:
        raise ConversionError(f"the network gives no tensor, but {type(outputs).__name__}")
    return found


def scores_of(outputs: Any) -> Tensor:
    """The scores among a network's outputs, whose largest is the network's answer.

    Args:
        outputs: What a network returned: a tensor, or one that is called ``logits``, ``scores`` or ``out``, or the
            first of a tuple or list, or the only tensor.

    Raises:
        ConversionError: No tensor is known to be the scores.
    """
    found = named_tensors(outputs)
    if len(found) == 1:
        return next(iter(found.values()))
    name = next((name for name in _SCORES if name in found), None)
    if name is None:
        raise ConversionError(f"the network gives several tensors, none of them known as scores: {', '.join(found)}")
    return found[name]


def class_scores(outputs: Any) -> Tensor:
    """The scores of whole images, [batch, classes]: the mean over pixels or boxes, if a network scores each.

    Args:
        outputs: As for ``scores_of``. Where transformers' detectors give boxes beside them, the scores are of boxes,
            [batch, boxes, classes]; those of pixels are [batch, classes, *size].

    Raises:
        ConversionError: As ``scores_of``, or the scores have no classes.
    """
    scores = scores_of(outputs)
    if scores.ndim < 2:
        raise ConversionError(f"the network gives scores {list(scores.shape)}, where [batch, classes] is needed")
    if scores.ndim == 2:
        return scores
    return scores.mean(1) if _BOXES in named_tensors(outputs) else scores.flatten(2).mean(2)


def _collect(value: Any, place: str, found: dict[str, Tensor]) -> None:
    if isinstance(value, Tensor):
        found[place] = value
        return
    for name, each in _parts(value):
        _collect(each, f"{place}.{name}" if place else str(name), found)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """The named parts of a container; none of anything else."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    if isinstance(value, tuple | list):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return ()
