"""The content terms are those of the draft's eq. (7), and off until they are trained."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conv2attn.convert import ConversionError, ConvSpec, SelfAttention2d
from conv2attn.convert.size import Size
from tests.bounds import output_bound, softmax_bound
from tests.integers import integers, with_integers

SPEC = ConvSpec(2, 3, kernel_size=(2, 1), stride=(1, 2), padding=(1, 0))
SIZE = Size(3, 4)


def layer_with_content(alpha: float = 0.5) -> SelfAttention2d:
    layer = SelfAttention2d(SPEC, alpha=alpha, dtype=torch.float64)
    with_integers(layer.add_content(key_dim=5), largest=1)
    return layer


def image(batch: int) -> Tensor:
    """Small integers: with them, with the weights above and with alpha = 1/2, scores are exact."""
    return integers(batch, 2, *SIZE, largest=2, dtype=torch.float64)


def test_content_terms_can_be_learned_from_there() -> None:
    layer = SelfAttention2d(SPEC, alpha=0.5)
    content = layer.add_content(key_dim=5)
    torch.autograd.backward(layer(torch.randn(2, 2, *SIZE)).square().sum())
    for name in ("query_weight", "key_bias"):
        gradient = getattr(content, name).grad
        assert gradient.abs().max() > 0


def test_maps_with_content_depend_on_the_input_and_ask_for_it() -> None:
    layer = layer_with_content()
    with pytest.raises(ConversionError, match="pass x"):
        layer.attention_probabilities(SIZE)
    maps = layer.attention_probabilities(SIZE, x=torch.randn(3, 2, *SIZE, dtype=torch.float64))
    assert maps.shape == (3, 2, 8, 5, 4)


def test_each_image_of_a_batch_has_its_own_attention() -> None:
    layer = layer_with_content()
    x = image(3)
    batch, alone = (layer.attention_probabilities(SIZE, x=images) for images in (x, x[1:2]))
    assert ((batch[1] - alone[0]).abs() <= softmax_bound(alone[0])).all()
    assert ((layer(x)[1] - layer(x[1])).abs() <= output_bound(layer, x)).all()
    assert (batch[0] - batch[1]).abs().max() > 0.1
