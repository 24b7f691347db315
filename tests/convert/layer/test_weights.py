"""``need_weights`` gives the attention weights behind an output, as ``nn.MultiheadAttention`` does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.engines.literal import project_values
from conv2attn.convert.errors import ConversionError
from tests.bounds import softmax_bound
from tests.integers import integers, with_integers


def strided(alpha: float | None = None) -> SelfAttention2d:
    """A layer of integers, so that its output does not depend on the order of sums."""
    conv = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2)
    return attention_from_conv(with_integers(conv, largest=8), alpha=alpha)


def test_the_weights_mix_the_values_into_the_output() -> None:
    layer, x = strided(), integers(3, 4, 7, 5)
    output, weights = layer(x, need_weights=True, average_attn_weights=False)
    values = project_values(layer.values(), layer.spec.pad(x))
    mixed = torch.einsum("bhqk,hkbo->boq", weights, values) + layer.bias.view(-1, 1)  # type: ignore[union-attr]
    assert torch.equal(output, layer(x))
    assert torch.equal(output.flatten(2), mixed)


@pytest.mark.parametrize("average", [True, False])
def test_with_content_every_input_has_weights_of_its_own(average: bool) -> None:
    layer, x = strided(alpha=0.5), torch.randn(3, 4, 7, 5)
    for parameter in layer.add_content(5).parameters():
        nn.init.normal_(parameter)
    weights = layer(x, need_weights=True, average_attn_weights=average)[1]
    maps = layer.attention_probabilities((7, 5), x=x).flatten(3)
    assert torch.equal(weights, maps.mean(1) if average else maps)
    assert not torch.equal(weights[0], weights[1])
    alone = layer.attention_probabilities((7, 5), x=x[1:2]).flatten(3)
    assert ((maps[1] - alone[0]).abs() <= softmax_bound(alone[0])).all()
    with pytest.raises(ConversionError, match="pass x"):
        layer.attention_probabilities((7, 5))


def test_weights_are_averaged_over_the_heads_unless_asked_otherwise_and_follow_the_batch() -> None:
    layer, x = strided(alpha=0.5), torch.randn(4, 7, 5)
    output, weights = layer(x, need_weights=True)
    heads = layer(x, need_weights=True, average_attn_weights=False)[1]
    assert (output.shape, weights.shape) == ((6, 4, 4), (4 * 4, 9 * 5))
    assert torch.equal(weights, heads.mean(0))


def test_weights_of_a_transposed_convolution_are_those_of_the_output_size_that_is_asked_for() -> None:
    layer = attention_from_conv(nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), alpha=0.5)
    x = torch.randn(2, 2, 4, 3)
    output, weights = layer(x, (8, 5), need_weights=True)
    assert output.shape[2:] == (8, 5)
    assert weights.shape == (2, 8 * 5, (8 + 2) * (5 + 2))


def test_under_autocast_the_weights_are_those_of_the_rounded_input_as_the_output_is() -> None:
    layer, x = strided(alpha=0.5), torch.randn(2, 4, 7, 5)
    for parameter in layer.add_content(5).parameters():
        nn.init.normal_(parameter)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, weights = layer(x, need_weights=True)
    assert torch.equal(weights, layer(x.bfloat16().float(), need_weights=True)[1])
    assert not torch.equal(weights, layer(x, need_weights=True)[1])


def test_weights_beyond_the_memory_limit_are_refused() -> None:
    layer = strided()
    layer.memory_limit = 10_000
    with pytest.raises(ConversionError, match="memory"):
        layer(torch.randn(1, 4, 7, 5), need_weights=True)


def test_fx_does_not_drop_the_weights_unseen() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = strided()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, need_weights=True)[1]  # type: ignore[no-any-return]

    with pytest.raises(ConversionError, match="input"):
        fx.symbolic_trace(Network())
