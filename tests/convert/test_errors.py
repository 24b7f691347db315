"""Names are suggested only where they may be meant."""

from __future__ import annotations

import pytest

from conv2attn.convert.errors import close_names

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
