"""The networks: how many parameters they have, that all of them learn, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from conv2attn.convert.errors import GeometryError, SelectionError
from conv2attn.learn.kinds import BLOCKS, ENCODINGS
from conv2attn.learn.networks import PAPER, AttentionNetwork, AttentionSizes, ImageKind, resnet

CIFAR = ImageKind(3, 32, 32)
DIGITS = ImageKind(1, 8, 8)
SMALL = AttentionSizes(depth=2, num_heads=5, hidden=8, feed_forward=12, key_dim=4)
EVERY = (*ENCODINGS, "quadratic+content", "gaussian+content", "absolute+content")


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("name", "millions"), [("resnet10", 4.9), ("resnet18", 11.2)])
def test_a_residual_network_has_the_parameters_that_are_published(name: str, millions: float) -> None:
    assert round(parameters(resnet(CIFAR, blocks=BLOCKS[name])) / 1e6, 1) == millions  # the first in Table 2


def test_a_network_of_attention_has_the_parameters_that_its_widths_say() -> None:
    layer = 9 * 400 * 400 + 400 + 9 * 3 + 2 * 400 * 512 + 512 + 400 + 4 * 400
    around = 12 * 400 + 400 + 400 * 10 + 10
    assert parameters(AttentionNetwork(CIFAR, PAPER)) == 6 * layer + around


@pytest.mark.parametrize("encoding", EVERY)
def test_every_parameter_of_every_encoding_has_a_gradient(encoding: str) -> None:
    torch.manual_seed(0)
    network = AttentionNetwork(DIGITS, replace(SMALL, encoding=encoding, padding=1))
    scores = network(torch.randn(3, 1, 8, 8))
    assert scores.shape == (3, 10)
    scores[:, 0].sum().backward()
    without = [name for name, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert without == [name for name in without if name.startswith("classifier")] == []


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if "+" not in name])
def test_sharpness_is_a_factor_of_the_first_scores(encoding: str) -> None:
    """Parameters are float32; a logarithm of at most 2 that is rounded moves its exp by a part of at most 2^-23."""
    found = []
    for sharpness in (1.0, 3.0):
        torch.manual_seed(0)
        sizes = replace(SMALL, encoding=encoding, sharpness=sharpness)
        network = AttentionNetwork(DIGITS, sizes).double()
        scores = torch.cat([layer.positions.scores(network.grid) for layer in network.layers]).detach()
        found.append(scores - scores.mean(-1, keepdim=True))
    scale = float(found[1].abs().max())
    torch.testing.assert_close(found[1], 3 * found[0], rtol=0, atol=scale * 2**-20)
    assert scale > 1


def test_images_that_cannot_be_cut_and_unknown_encodings_are_refused() -> None:
    with pytest.raises(GeometryError, match="images of 7x8 cannot be cut into 2x2 pixels"):
        AttentionNetwork(ImageKind(1, 7, 8), SMALL)
    with pytest.raises(SelectionError, match="no encoding 'quadratc'; there are quadratic, gaussian"):
        AttentionNetwork(DIGITS, replace(SMALL, encoding="quadratc"))
