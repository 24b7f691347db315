"""The examples of public names do what they show."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest
import torch

import conv2attn as c2a
from tests import language_models

EXAMPLES = {
    name: found
    for name in c2a.__all__
    for found in doctest.DocTestParser().get_examples(inspect.getdoc(getattr(c2a, name)) or "")[:1]
}
WITHOUT = {"__version__", "certify_images"}


def test_every_public_name_has_an_example() -> None:
    assert {*c2a.__all__} - EXAMPLES.keys() == WITHOUT


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "export_onnx")) for name in EXAMPLES]
)
def test_an_example_does_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    text = inspect.getdoc(getattr(c2a, name)) or ""
    test = doctest.DocTestParser().get_doctest(
        text, {"torch": torch, "c2a": c2a, "networks": language_models}, name, None, None
    )
    assert doctest.DocTestRunner().run(test).failed == 0
