"""A network's certificate holds for the program that runs, whatever its modules say, or there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.certificate.network.certificate import NetworkCertificate, certify_network
from conv2attn.proofs.campaign.arithmetic import certified_arithmetic
from conv2attn.proofs.campaign.layers import RandomLayer, channel_limits, draw_layer
from conv2attn.proofs.campaign.values import drawn_convolution, images
from tests.convert.certificate.network.programs import FOLLOWED, PROGRAMS

CPU = torch.device("cpu")
LAYERS = 10  # of each program


def layers(first: int) -> Iterator[RandomLayer]:
    for index in range(first, first + LAYERS):
        yield draw_layer(0, index)


@torch.no_grad()
def beyond(name: str, certify: Any = certify_network) -> list[str]:
    """Layers whose program exceeds its certificate, or has none although it can be followed."""
    found = []
    for layer in layers(LAYERS * list(PROGRAMS).index(name)):
        conv, x = drawn_convolution(layer, CPU), images(layer, CPU)
        attention = attention_from_conv(conv, alpha=layer.choose("regime", (None, layer.alpha)))
        cnn, network = PROGRAMS[name](conv).eval(), PROGRAMS[name](attention).eval()
        bound = certify(network, input_range=channel_limits(x), size=layer.size).bound
        if bound is not None and not (network(x).double() - cnn(x).double()).abs().max() <= bound:
            found.append(str(layer))
        if bound is None and name in FOLLOWED and layer.dtype != "float16":  # which some values exceed
            found.append(f"{layer}: no bound")
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_runs_is_within_the_certificate_or_has_none(name: str) -> None:
    with certified_arithmetic():
        assert beyond(name) == []


@pytest.mark.fault
def test_a_network_whose_modules_are_followed_in_place_of_what_runs_is_caught() -> None:
    def without_the_root(model: nn.Module, **options: Any) -> NetworkCertificate:
        return certify_network(nn.Sequential(*model.children()), **options)

    with certified_arithmetic():
        assert beyond("hook after the root", without_the_root)
