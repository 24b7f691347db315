"""Classes are found where pickles of version 1 look for them."""

from __future__ import annotations

import importlib

import pytest

from conv2attn.convert.heads.content import AxisScores
from conv2attn.convert.layer.layer import SelfAttention1d, SelfAttention2d
from conv2attn.convert.layer.of_subclass import OfSubclass2d, OfSubclass3d
from conv2attn.convert.subclasses.libraries import standardised
from conv2attn.convert.subclasses.padded import PaddedConv2d
from conv2attn.convert.subclasses.readers import Origin, Reader


@pytest.mark.parametrize(
    ("module", "name", "now"),
    [
        ("attention.layer", "SelfAttention2d", SelfAttention2d),
        ("attention.learned", "LearnedAttention1d", SelfAttention1d),
        ("attention.read", "OfSubclass2d", OfSubclass2d),
        ("attention.read", "LearnedOfSubclass3d", OfSubclass3d),
        ("attention.read", "Origin", Origin),
        ("attention.reader", "Reader", Reader),
        ("attention.libraries", "standardised", standardised),
        ("heads.axis_scores", "AxisScores", AxisScores),
        ("padded", "PaddedConv2d", PaddedConv2d),
    ],
)
def test_a_class_of_version_1_is_found_in_its_old_module(module: str, name: str, now: object) -> None:
    assert getattr(importlib.import_module(f"conv2attn.convert.{module}"), name) is now
