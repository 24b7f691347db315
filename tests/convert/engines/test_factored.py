"""The factored engine smooths as its formula says, along the axes that have several taps, and refuses what is moved."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.bounds.rounding import EXP_ULPS, factored_error, gamma, unit_roundoff
from conv2attn.convert.engines import ENGINES, factored
from conv2attn.convert.engines.factored import smoothing_matrix
from conv2attn.convert.engines.passes import Axis, Passes
from conv2attn.convert.heads.regime import UNREAD
from conv2attn.convert.size import Size
from conv2attn.convert.spec import ConvSpec

FACTORED = ENGINES["factored"]


def layer_of(alpha: float | None = 2.0) -> SelfAttention2d:
    return attention_from_conv(nn.Conv2d(2, 4, (3, 1), stride=(2, 3), padding=1), alpha=alpha)


def test_it_refuses_what_is_no_smoothing_before_a_convolution() -> None:
    assert FACTORED.refusal(layer_of()) is None
    with_content, tables, trained, moved, mixed = (layer_of() for _ in range(5))
    with_content.add_content(2)
    tables.set_axis_scores(torch.zeros(3, 9), torch.zeros(3, 9))
    trained.centers.requires_grad_()
    with torch.no_grad():
        moved.centers[2, 0] += 0.5
        mixed.alpha[1] = 3.0
    assert FACTORED.refusal(with_content) == "the layer has content terms"
    assert FACTORED.refusal(tables) == "the positional scores are learned tables"
    assert "require gradients" in str(FACTORED.refusal(trained))
    assert FACTORED.refusal(moved) == "a head's centre is not at its kernel tap"
    assert FACTORED.refusal(mixed) == "the heads do not share one alpha"
    assert FACTORED.refusal(layer_of().to("meta")) == UNREAD


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_its_error_is_known(alpha: float | None) -> None:
    assert 0 < FACTORED.error(layer_of(alpha)) == factored_error(layer_of(alpha)) < math.inf


@pytest.mark.parametrize(("targets", "step"), [(None, 1), (1, 1), (4, 2), (3, 3), (9, 1)])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 30.0])
def test_each_row_of_the_smoothing_matrix_is_a_softmax_around_its_target(
    targets: int | None, step: int, alpha: float
) -> None:
    found = smoothing_matrix(7, alpha, like=torch.zeros(0, dtype=torch.float64), targets=targets, step=step)
    assert found.shape == (7 if targets is None else targets, 7)
    farthest = max(6, step * (len(found) - 1))
    relative = math.expm1(4 * unit_roundoff(torch.float64) * alpha * farthest**2)
    relative += gamma(4 * EXP_ULPS + 7, unit_roundoff(torch.float64))
    for number, row in enumerate(found.tolist()):
        scores = [-alpha * (key - step * number) ** 2 for key in range(7)]
        powers = [math.exp(score - max(scores)) for score in scores]
        for observed, power in zip(row, powers, strict=True):
            assert abs(observed - power / math.fsum(powers)) <= 4 * relative * power / math.fsum(powers)
    if step == 1:
        by_default = smoothing_matrix(7, alpha, like=torch.zeros(0, dtype=torch.float64), targets=targets)
        assert torch.equal(by_default, found)
    for dtype, kept in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32)):
        single = smoothing_matrix(7, alpha, like=torch.zeros(0, dtype=dtype), targets=targets, step=step)
        assert single.dtype == kept
        assert torch.equal(single, found.float())


def test_along_an_axis_with_one_tap_the_queries_alone_are_smoothed_and_the_stride_is_in_them() -> None:
    spec, size = ConvSpec(2, 4, (3, 1, 2), stride=(2, 3, 4), padding=(1, 2, 0)), Size(8, 9, 10)
    assert [factored._targets(spec, size, axis) for axis in range(3)] == [
        Axis(keys=10, queries=10, start=0, stride=1, first=1, step=1, pixels=8),
        Axis(keys=13, queries=5, start=0, stride=3, first=2, step=1, pixels=9),
        Axis(keys=10, queries=10, start=0, stride=1, first=0, step=1, pixels=10),
    ]
    assert factored._stride(spec) == (2, 1, 4)


def test_a_smoothing_is_made_once_for_each_shape_and_memory_format() -> None:
    values, x = attention_from_conv(nn.Conv2d(2, 4, 3), alpha=2.0)._values(), torch.zeros(2, 2, 9, 8)
    made = factored._smoothing(values, x)
    assert factored._smoothing(values, torch.ones_like(x)) is made
    last = factored._smoothing(values, x.contiguous(memory_format=torch.channels_last))
    others = [last, factored._smoothing(values, x[:1]), factored._smoothing(values, x[..., 1:])]
    assert len({id(smoothing) for smoothing in (made, *others)}) == 4
    assert made.nbytes == made.attention.nbytes > 0


@pytest.mark.parametrize("conv", [nn.Conv1d(2, 4, 3), nn.Conv3d(2, 4, 3)])
def test_sequences_and_volumes_are_smoothed_alike_however_they_lie_in_memory(conv: nn.Conv1d | nn.Conv3d) -> None:
    values, x = attention_from_conv(conv, alpha=2.0)._values(), torch.zeros(2, 2, *(5,) * len(conv.kernel_size))
    made = factored._smoothing(values, x)
    assert isinstance(made.attention, Passes)
    if x.ndim == 5:
        assert factored._smoothing(values, x.contiguous(memory_format=torch.channels_last_3d)) is made


def test_where_positions_are_not_known_all_keys_are_taken_to_be_read() -> None:
    flat, unknown = layer_of(1e-6), layer_of(5.0).to("meta")
    assert FACTORED.cost(unknown, Size(9, 40)) == FACTORED.cost(flat, Size(9, 40))
    assert FACTORED.cost(layer_of(5.0), Size(9, 40)).flops < FACTORED.cost(flat, Size(9, 40)).flops


def test_a_kernel_of_one_tap_comes_first_where_it_leaves_fewer_channels() -> None:
    first = [
        factored._channels_first(ConvSpec(4, outputs, taps))
        for outputs, taps in ((3, (1, 1)), (4, (1, 1)), (3, (1, 2)))
    ]
    assert first == [True, False, False]
    conv, x = nn.Conv2d(4, 3, 1), torch.randn(2, 4, 6, 5)
    layer = attention_from_conv(conv, alpha=1.0, engine="factored")
    assert conv.bias is not None
    bias = conv.bias.detach().view(-1, 1, 1)
    with torch.no_grad():
        with_bias = layer(x)
        assert layer.bias is not None
        layer.bias.zero_()
        assert torch.equal(with_bias, layer(x) + bias)
    unbiased = attention_from_conv(nn.Conv2d(4, 3, 1, bias=False), alpha=1.0, engine="factored")
    with torch.no_grad():
        unbiased.weight.copy_(layer.weight)
        assert torch.equal(unbiased(x), layer(x))


def test_what_moves_as_many_numbers_before_the_convolution_as_after_is_laid_out_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid: list[tuple[int, ...]] = []

    def noted(x: Tensor, y: Tensor) -> Tensor:
        laid.append(tuple(y.shape))
        return y

    monkeypatch.setattr(factored, "laid_out_like", noted)
    conv = nn.Conv2d(4, 4, 1)
    assert (
        factored._reordered_after(attention_from_conv(conv).spec, torch.zeros(2, 4, 6, 5), conv.weight) == 2 * 4 * 6 * 5
    )
    attention_from_conv(conv, alpha=1.0, engine="factored")(torch.randn(2, 4, 6, 5))
    assert laid == [(2, 4, 6, 5)]
