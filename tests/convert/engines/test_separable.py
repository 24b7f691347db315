"""Engines that never form all pairs agree with the literal one; the campaign has outputs of heads anywhere."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import separable as engine_module
from conv2attn.convert.errors import EngineError, GeometryError
from conv2attn.proofs.campaign.checks import engines_bound
from conv2attn.proofs.campaign.strategies import attention_layers, convolutions_with_input
from tests.bounds import output_bound
from tests.integers import integers, with_integers

DOUBLES = convolutions_with_input(dtype=torch.float64)
Case = tuple[nn.Conv2d, Tensor]


@given(DOUBLES, st.data())
def test_learned_tables_are_computed_exactly(case: Case, data: st.DataObject) -> None:
    conv, x = case
    layer = attention_from_conv(conv, engine="separable")
    tables = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    layer.set_axis_scores(*(torch.randint(-6, 7, (layer.num_heads, 99), generator=tables) for _ in range(2)))
    separable = layer(x)
    layer.engine = "literal"
    assert (separable - layer(x)).abs().max() <= output_bound(layer, x)


@given(DOUBLES, st.data())
def test_gradients_of_positions_agree(case: Case, data: st.DataObject) -> None:
    conv, x = case
    layer = data.draw(attention_layers(conv))
    layer.train_positions()
    positions = [layer.get_parameter("log_alpha"), layer.get_parameter("centers")]
    cotangent = torch.randn_like(conv(x))
    gradients = {}
    for engine in ("separable", "literal"):
        layer.engine = engine
        gradients[engine] = torch.autograd.grad(layer(x), positions, cotangent)
    grid = layer.spec.padded_size(Size(*x.shape[2:]))
    reach = math.hypot(*grid) + float(layer.centers.detach().abs().max()) * 2
    # d output / d log alpha = alpha sum_k p_k (mean - distance^2) x_k: the error of p, on terms up to alpha reach^2.
    largest = 8 * max(1, float(layer.alpha.detach().max())) * reach**2 * float(cotangent.abs().sum())
    for separable, literal in zip(gradients["separable"], gradients["literal"], strict=True):
        assert (separable - literal).abs().max() <= engines_bound(layer, x.detach()) * largest


def test_images_in_parts_give_every_image_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = with_integers(nn.Conv2d(2, 3, 2)), integers(3, 2, 5, 4)
    monkeypatch.setattr(engine_module, "_CHUNK_BYTES", 1)
    assert torch.equal(attention_from_conv(conv, engine="separable")(x), conv(x))


def test_learned_tables_have_limits_and_say_so() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 3))
    with pytest.raises(GeometryError, match="must have 9 heads"):
        layer.set_axis_scores(torch.zeros(3, 5), torch.zeros(3, 5))
    with pytest.raises(GeometryError, match="odd number"):
        layer.set_axis_scores(torch.zeros(9, 4), torch.zeros(9, 5))
    layer.set_axis_scores(torch.zeros(9, 11), torch.zeros(9, 11))
    layer(torch.zeros(1, 1, 6, 6))
    with pytest.raises(GeometryError, match="tables reach 6"):
        layer(torch.zeros(1, 1, 7, 6))
    layer.engine = "factored"
    with pytest.raises(EngineError, match="learned tables"):
        layer(torch.zeros(1, 1, 6, 6))
