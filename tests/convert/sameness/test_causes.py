"""Wrong constants that people have shipped: each is found at its place with its cause, and innocents are not named."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.sameness.verdict import Sameness
from tests.convert.sameness.written import CASES, Case, compared


def exported(model: nn.Module, image: Tensor, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch.onnx.export(model, (image,), path, dynamo=True, verbose=False)
    return path


def told(found: Sameness, case: Case) -> None:
    """The first place, its cause, and that nothing else is named."""
    assert found.verdict == "not rounding"
    assert case.place in found.where[0].name
    assert [words for words in case.says if words not in str(found.where[0])] == []
    assert {place.name for place in found.where} <= {*case.all, found.where[0].name}


@pytest.mark.fault
@pytest.mark.parametrize("name", CASES)
def test_a_bug_that_was_shipped_is_named_with_its_cause(name: str) -> None:
    a, b, x = CASES[name].pair()
    told(compared(a, b, x), CASES[name])
