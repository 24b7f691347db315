"""Names are suggested only where they may be meant, and cures stand at the ends of sentences."""

from __future__ import annotations

import pickle

import pytest

from conv2attn.convert.errors import OutputExistsError, close_names

NAMES = ["head-assembly", "softmax-shift", "separable-softmax", "csatv2", "resnet18", "resnet18d"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hed-assembly", "; close names: head-assembly"),
        ("resnt18", "; close names: resnet18, resnet18d"),
        ("softmax", "; close names: softmax-shift, separable-softmax"),
        ("nope", ""),
        ("cat", ""),
        ("so", ""),
    ],
)
def test_close_names(name: str, told: str) -> None:
    assert close_names(name, NAMES) == told


def test_an_error_has_its_cure_at_its_end_and_its_sentence_alone_also_in_another_process() -> None:
    error = OutputExistsError("out exists already", cure="force=True replaces it")
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert (str(each), each.sentence) == ("out exists already; force=True replaces it", "out exists already")
    assert str(OutputExistsError("out exists")) == OutputExistsError("out exists").sentence == "out exists"
