"""Attention with content terms equals the formula written out, pixel by pixel, in every engine that computes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from conv2attn.convert import ConvSpec, attention_from_conv
from conv2attn.convert.engines import ENGINES
from conv2attn.proofs.campaign.arithmetic import certified_arithmetic
from conv2attn.proofs.campaign.case import in_engines
from conv2attn.proofs.campaign.layers import draw_layer
from conv2attn.proofs.campaign.values import drawn_convolution, images
from tests.bounds import output_bound
from tests.convert.engines.written_out import MOST_SCORES, add_content, number_of_scores, written_out
from tests.faults import drop_a_head

LAYERS = 60
CPU = torch.device("cpu")


@torch.no_grad()
def beyond(first: int) -> list[str]:
    """Layers and engines that are further from the formula than rounding explains."""
    found, compared = [], 0
    for index in range(first, first + LAYERS):
        layer = draw_layer(0, index)
        if number_of_scores(layer) > MOST_SCORES:
            continue
        attention = attention_from_conv(drawn_convolution(layer, CPU, integers=True).double(), alpha=0.5)
        x = images(layer, CPU, integers=True).double()
        add_content(layer, attention)
        expected, bound = written_out(attention, x), output_bound(attention, x)
        for one in in_engines(attention, tuple(ENGINES)):
            compared += 1
            if not (one(x) - expected).abs().max() <= bound:
                found.append(f"{layer}, {one.engine}")
    assert compared > LAYERS  # two engines compute content, for most of the layers
    return found


@pytest.mark.parametrize("first", [0, LAYERS])
def test_every_engine_computes_the_terms_as_they_are_written_out(first: int) -> None:
    with certified_arithmetic():
        assert beyond(first) == []


def query_the_kernels_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConvSpec, "middle", property(lambda spec: (0,) * spec.axes))


@pytest.mark.fault
@pytest.mark.parametrize("plant", [query_the_kernels_corner, drop_a_head])
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with certified_arithmetic():
        assert beyond(0)
