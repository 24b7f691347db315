"""What a network returns is taken apart into tensors with names, and the scores are found among them."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.inputs import class_scores, named_tensors, scores_of

A, B, C = torch.zeros(1), torch.ones(2), torch.full((3,), 2.0)
Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Sample:
    """Of the kind that diffusers returns."""

    sample: Tensor
    more: Any = None


class Output(OrderedDict[str, Any]):
    """Of the kind that transformers returns: a dictionary whose entries are attributes."""


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (A, {"": A}),
        ((A, (B, [C])), {"0": A, "1.0": B, "1.1.0": C}),
        ([{"boxes": A, "labels": B}, {"boxes": C}], {"0.boxes": A, "0.labels": B, "1.boxes": C}),
        (Pair(A, (B,)), {"left": A, "right.0": B}),
        (Sample(A, [Sample(B, 3), None, "text"]), {"sample": A, "more.0.sample": B}),
        (Output(loss=None, logits=A, hidden_states=(B, C)), {"logits": A, "hidden_states.0": B, "hidden_states.1": C}),
        ({1: A, ("x", 2): B}, {"1": A, "('x', 2)": B}),
    ],
)
def test_tensors_are_named_by_their_place(outputs: Any, names: dict[str, Tensor]) -> None:
    found = named_tensors(outputs)
    assert list(found) == list(names)
    assert all(found[name] is tensor for name, tensor in names.items())


@pytest.mark.parametrize("outputs", [None, {"loss": None}])
def test_outputs_without_a_tensor_are_refused(outputs: Any) -> None:
    with pytest.raises(ConversionError, match=f"gives no tensor, but {type(outputs).__name__}"):
        named_tensors(outputs)


@pytest.mark.parametrize(
    "outputs",
    [A, {"anything": A}, (A, B), Output(last=B, logits=A), {"aux": B, "out": A}],
)
def test_scores_are_found(outputs: Any) -> None:
    assert scores_of(outputs) is A


def test_scores_that_nobody_names_are_refused_with_what_there_is() -> None:
    with pytest.raises(ConversionError, match=r"none of them known as scores: boxes, masks$"):
        scores_of({"boxes": A, "masks": B})


def test_scores_of_pixels_and_of_boxes_are_averaged_to_those_of_the_image() -> None:
    scores = torch.arange(24.0).view(2, 3, 4)
    assert torch.equal(class_scores({"logits": scores}), scores.mean(2))
    assert torch.equal(class_scores({"logits": scores.view(2, 3, 2, 2)}), scores.mean(2))
    boxes = Output(logits=scores, pred_boxes=torch.zeros(2, 3, 4))
    assert torch.equal(class_scores(boxes), scores.mean(1))
    assert torch.equal(class_scores(scores[0]), scores[0])
