"""The layer against convolutions and against its formula, bit for bit where attention is one-hot or dyadic."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.errors import ConversionError, GeometryError
from conv2attn.convert.heads.encoding import grid_points
from conv2attn.convert.layer.construction import attention_from_conv
from conv2attn.learn.heads import attention as layer_module
from conv2attn.learn.heads.attention import HeadAttention
from conv2attn.learn.heads.encodings import Content, Gaussian, IsotropicGaussian, Learned, SinusoidalRelative
from conv2attn.learn.heads.positions import Grid, Positions

TAPS = grid_points(torch.arange(-1, 2), torch.arange(-1, 2))  # of a 3x3 kernel
ROWS, COLUMNS, REACH = 4, 6, 8
SHARP = 2048.0


def whole_numbers(*shape: int) -> Tensor:
    return torch.randint(-4, 5, shape).double()


def at_taps(name: str) -> Positions:
    """Heads that look at the taps of a 3x3 kernel, and nowhere else in double precision."""
    kinds: dict[str, Callable[[], Positions]] = {
        "quadratic": lambda: IsotropicGaussian(9, alpha=SHARP),
        "gaussian": lambda: Gaussian(9, alpha=SHARP),
        "learned": lambda: Learned(9, reach=REACH),
        "sinusoidal": lambda: SinusoidalRelative(9, frequencies=1),
    }
    positions = kinds[name]().double()
    with torch.no_grad():
        if isinstance(positions, IsotropicGaussian | Gaussian):
            positions.centers.copy_(TAPS)
        if isinstance(positions, Gaussian):
            positions.below.fill_(0.5)
        for axis, tap in enumerate(TAPS.double().T):
            if isinstance(positions, Learned):
                positions.table.tables[axis].copy_(-SHARP * (torch.arange(1 - REACH, REACH) != tap[:, None]))
            elif isinstance(positions, SinusoidalRelative):
                sharp = 16 * SHARP  # an offset of 6 is nearly a whole wave away
                positions.amplitudes[axis].copy_(sharp * torch.stack([tap.sin(), tap.cos()], 1))
    return positions


def layer_of(positions: Positions, content: Content | None = None) -> HeadAttention:
    layer = HeadAttention(3, 5, positions, content=content, padding=1).double()
    with torch.no_grad():
        layer.weight.copy_(whole_numbers(*layer.weight.shape))
        layer.bias.copy_(whole_numbers(5))
    return layer


def convolution(layer: HeadAttention, x: Tensor) -> Tensor:
    """The convolution whose taps are the heads' targets."""
    kernel = layer.weight.detach().transpose(1, 2).unflatten(2, (3, 3))
    output: Tensor = F.conv2d(x.permute(0, 3, 1, 2), kernel, layer.bias.detach(), padding=1)
    return output.permute(0, 2, 3, 1)


@pytest.fixture(params=[True, False], ids=["two passes", "one pass"])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_module, "_separable_is_cheaper", lambda grid: request.param)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("name", ["quadratic", "gaussian", "learned", "sinusoidal"])
def test_sharp_heads_at_the_taps_are_the_convolution(name: str) -> None:
    layer, x = layer_of(at_taps(name)), whole_numbers(2, ROWS, COLUMNS, 3)
    assert torch.equal(layer(x), convolution(layer, x))


def test_a_soft_layer_is_the_converted_layer_with_these_positions() -> None:
    conv = nn.Conv2d(3, 5, 3, padding=1).double()
    converted = attention_from_conv(conv, alpha=1.0)
    positions = IsotropicGaussian(9, alpha=1.0).double()
    with torch.no_grad():
        positions.centers.copy_(TAPS)
        scores = positions.scores(Grid(ROWS, COLUMNS, padding=1))  # whole numbers
        wanted = converted.attention_probabilities((ROWS, COLUMNS)).flatten(2)
    difference = (scores.softmax(-1) - wanted).abs() / wanted
    # each side: two exponentials, 2 units of rounding each, their product, sums of 48 terms, a quotient
    assert difference.max() <= 2 * (2 * 2 + 48 + 3) * 2**-53


def literal_probabilities(layer: HeadAttention, content: Content, x: Tensor, grid: Grid) -> Tensor:
    """Eq. 7 as it is written, one pair after the other: [batch, num_heads, num_queries, num_keys]."""
    keys = F.pad(x, (0, 0, *[layer.padding] * 4)).flatten(1, 2)
    queries, offsets = x.flatten(1, 2), grid.offsets(x).long()
    rows, columns = content.offsets.tables
    scores = torch.zeros(len(x), layer.num_heads, queries.shape[1], keys.shape[1]).double()
    for head in range(layer.num_heads):
        asked, shown = queries @ content.query_weight[head].T, keys @ content.key_weight[head].T
        for q, k in torch.cartesian_prod(torch.arange(queries.shape[1]), torch.arange(keys.shape[1])).tolist():
            first, second = (offsets[q, k] + REACH - 1).tolist()
            relative = rows[:, first] + columns[:, second]
            terms = asked[:, q] @ relative + (asked[:, q] * shown[:, k]).sum(-1) + shown[:, k] @ content.key_bias[head]
            scores[:, head, q, k] = terms / math.sqrt(len(relative))
    return (scores + layer.positions.scores(grid)).softmax(-1)


@pytest.mark.parametrize("name", ["quadratic", "learned"])
def test_content_is_eq_7(name: str) -> None:
    torch.manual_seed(2)  # without ties
    content = Content(9, 3, key_dim=4, reach=REACH)
    layer = layer_of(at_taps(name), content)
    with torch.no_grad():
        for parameter in content.parameters():
            parameter.copy_(128 * torch.randint(-9, 10, parameter.shape))
        x = whole_numbers(2, 3, 2, 3)
        grid = layer.grid(3, 2)
        wanted = literal_probabilities(layer, content, x, grid)
        assert ((wanted == 0) | (wanted == 1)).all()
        targets = wanted.argmax(-1)
        assert len(targets.unique()) > 5  # content moves the heads, and not all to one pixel
        assert torch.equal(layer.probabilities(grid, x), wanted)
        keys = F.pad(x, (0, 0, 1, 1, 1, 1)).flatten(1, 2).unsqueeze(1)
        read = (wanted @ keys).transpose(1, 2).flatten(2)
        assert torch.equal(layer(x).flatten(1, 2), F.linear(read, layer.weight.flatten(1), layer.bias))


def test_an_input_of_another_shape_is_refused_and_content_needs_one() -> None:
    layer = layer_of(at_taps("learned"), Content(9, 3, key_dim=4, reach=REACH))
    with pytest.raises(GeometryError, match=r"\[batch, rows, columns, 3\]; got \[2, 3, 4, 6\]"):
        layer(torch.randn(2, 3, 4, 6))
    with pytest.raises(ConversionError, match="x is needed"):
        layer.probabilities(layer.grid(ROWS, COLUMNS))


def test_autocast_does_not_reach_the_probabilities() -> None:
    layer = layer_of(at_taps("quadratic")).float()
    with torch.no_grad():
        layer.positions.get_parameter("centers").mul_(1 + 2**-12)  # bfloat16 would round that away
    outside = layer.probabilities(layer.grid(ROWS, COLUMNS))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.probabilities(layer.grid(ROWS, COLUMNS)), outside)
        assert layer(torch.randn(1, ROWS, COLUMNS, 3)).dtype == torch.bfloat16
