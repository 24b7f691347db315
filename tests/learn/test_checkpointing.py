"""Gradients of a layer whose activations are computed again are those of the layer, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conv2attn.convert import attention_from_conv
from conv2attn.convert.spec import Convolution
from conv2attn.learn.heads.attention import HeadAttention
from conv2attn.learn.heads.encodings import Content, Gaussian, Learned
from conv2attn.learn.melting import melt

CONVOLUTIONS: dict[str, tuple[Convolution, Tensor]] = {
    "image": (nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=1, groups=2), torch.randn(2, 4, 5, 7)),
    "transposed": (nn.ConvTranspose2d(3, 5, 3, stride=2), torch.randn(2, 3, 4, 5)),
}


def gradients(layer: nn.Module, x: Tensor, call: Callable[[Tensor], Tensor]) -> list[Tensor]:
    x = x.clone().requires_grad_()
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(call(x).square().sum(), [x, *parameters]))


def assert_recomputed(layer: nn.Module, x: Tensor) -> None:
    """Each saved tensor may be read once, since reading computes it again."""
    again = gradients(layer, x, lambda x: checkpoint(layer, x, use_reentrant=False))
    assert all(map(torch.equal, again, gradients(layer, x, layer)))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_a_layer_may_be_checkpointed_exact_melted_and_with_content(kind: str) -> None:
    conv, x = CONVOLUTIONS[kind]
    assert_recomputed(attention_from_conv(conv), x)
    assert_recomputed(melt(conv), x)
    layer = attention_from_conv(conv, alpha=2.0)
    added = layer.add_content(3)
    with torch.no_grad():
        for parameter in added.parameters():
            parameter.uniform_(0.1, 0.5)
    assert_recomputed(layer, x)


def test_a_layer_of_learned_positions_may_be_checkpointed() -> None:
    for positions, content in (
        (Gaussian(3, alpha=1.0), None),
        (Learned(3, reach=8), Content(3, 4, key_dim=4, reach=8)),
    ):
        layer = HeadAttention(4, 5, positions, content=content)
        assert_recomputed(layer, torch.randn(2, 5, 6, 4))
