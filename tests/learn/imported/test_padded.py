"""Other people's heads over padded keys: a convolution where they are one-hot, the same function away from borders."""

from __future__ import annotations

import pytest
import torch

from conv2attn.convert import ConversionError, certify, conv_from_attention
from conv2attn.learn import attention_from, freeze
from conv2attn.learn.heads.attention import HeadAttention
from conv2attn.learn.heads.gaussian import Gaussian, IsotropicGaussian, Quadratic
from conv2attn.learn.imported.padded import with_padded_keys
from tests.learn.imported.modules import GaussianAttention

ROWS, COLUMNS = 7, 9
ROUNDING = 2.0**-30  # of double precision, as in test_attention_from.py


def first(layer: HeadAttention, x: torch.Tensor) -> torch.Tensor:
    """The layer's output with its channels first, as a convolution has them."""
    output: torch.Tensor = layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return output


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape).float()


def heads_at(centers: torch.Tensor, alpha: float = 128.0) -> HeadAttention:
    positions = Quadratic(torch.full((len(centers), 2), -alpha), 2 * alpha * centers)
    return HeadAttention.of(positions, whole(4, len(centers), 3), whole(4))


@pytest.mark.parametrize("heads", [4, 9])
@torch.no_grad()
def test_one_hot_heads_are_a_convolution_and_agree_with_it_where_their_targets_are_pixels(heads: int) -> None:
    taps = torch.cartesian_prod(torch.arange(-1.0, 2), torch.arange(-1.0, 2))
    layer = heads_at(taps[torch.randperm(9)[:heads]])
    padded = with_padded_keys(layer)
    conv = conv_from_attention(padded)
    assert certify(padded, input_range=(-1, 1)).bound < float("inf")
    x = whole(2, 3, ROWS, COLUMNS)
    assert torch.equal(conv(x), padded(x))
    assert torch.equal(conv(x)[..., 1:-1, 1:-1], first(layer, x)[..., 1:-1, 1:-1])


@torch.no_grad()
def test_heads_far_away_are_reached_by_dilation() -> None:
    layer = heads_at(torch.tensor([[-3.0, 0.0], [0.0, 2.0], *[[0.0, 0.0]] * 8]))
    padded = with_padded_keys(layer)
    assert (padded.spec.kernel_size, padded.spec.dilation, padded.spec.padding) == ((5, 5), (2, 2), (4, 4))
    x = whole(1, 3, ROWS, COLUMNS)
    assert torch.equal(padded(x)[..., 3:, :-2], first(layer, x)[..., 3:, :-2])


@torch.no_grad()
def test_soft_heads_agree_in_the_middle_and_can_be_frozen() -> None:
    module = GaussianAttention(3, 4, isotropic=True).double()
    module.attention_spreads.fill_(2)  # alpha = 2: beyond the border, 7 pixels from the heads, it is exp(-98)
    module.attention_centers.clamp_(-1, 1)
    layer = attention_from(module)
    assert isinstance(layer, HeadAttention)
    padded = with_padded_keys(layer)
    x = torch.rand(1, 3, 15, 15, dtype=torch.float64)
    ours = first(layer, x)
    assert (padded(x) - ours)[..., 7, 7].abs().max() < ROUNDING
    frozen = freeze(padded, 1e-3, input_range=(0, 1)).layers[0]
    assert frozen.certificate.cut_off <= 1e-3
    assert (frozen.convolution(x) - ours)[..., 7, 7].abs().max() <= 1e-3


def test_isotropic_gaussians_of_our_own_training_are_taken_too() -> None:
    layer = HeadAttention(3, 4, IsotropicGaussian(4))
    assert torch.equal(with_padded_keys(layer).alpha[:4].sort()[0], torch.ones(4))


@pytest.mark.parametrize(
    "positions",
    [
        Gaussian(2),
        Quadratic(torch.ones(2, 2), torch.ones(2, 2)),
        Quadratic(torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2)),
        Quadratic(-torch.ones(2, 2), torch.ones(2, 2), torch.ones(2)),
    ],
)
def test_other_scores_are_refused(positions: Quadratic | Gaussian) -> None:
    with pytest.raises(ConversionError, match="scores"):
        with_padded_keys(HeadAttention(3, 4, positions))
