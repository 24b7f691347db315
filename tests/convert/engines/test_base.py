"""What all engines share: padding that is split between us and torch's call, costs, and who computes a layer."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import AUTO, ENGINES, Engine, choose_engine, engine_error
from conv2attn.convert.engines.factored import convolution_padding, pad_for_tables
from conv2attn.convert.errors import EngineError
from conv2attn.convert.spec import ConvSpec, reversed_pads
from conv2attn.proofs.campaign.strategies import every_spec, input_sizes
from tests.positions import move_center, set_alpha

UNEVEN = ConvSpec(2, 2, (3, 2), padding=((1, 0), (2, 3)))
UNEVEN_MODE = ConvSpec(2, 2, (3, 2), padding=((1, 0), (2, 1)), padding_mode="circular")
SAME = ConvSpec(2, 2, (6, 2), padding="same")
BY_SIZE = ConvSpec(2, 2, (3, 4), stride=(2, 3), padding="same_upper")
DROPPING = ConvSpec(2, 2, (3, 2), stride=(2, 3), padding=(4, 3), transposed=True)  # more than the kernel's reach
DROPPING_ALL = ConvSpec(2, 2, (2, 2), padding=(3, 1), transposed=True)


def numbered(spec: ConvSpec, size: Size) -> Tensor:
    """Two inputs whose pixels are all different, and not zero."""
    shape = (2, spec.in_channels, *size)
    return torch.arange(1.0, 1 + torch.Size(shape).numel(), dtype=torch.float64).view(shape)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[ConvSpec, Size]:
    """Any geometry, and a size that it accepts."""
    spec = draw(every_spec())
    return spec, draw(input_sizes(spec))


@example((UNEVEN, Size(3, 4)))
@example((UNEVEN_MODE, Size(3, 4)))
@example((BY_SIZE, Size(5, 4)))
@example((SAME, Size(5, 4)))
@example((DROPPING, Size(5, 6)))
@example((DROPPING_ALL, Size(4, 4)))
@given(inputs())
def test_the_padding_and_that_of_torchs_call_are_the_key_grid(case: tuple[ConvSpec, Size]) -> None:
    spec, size = case
    x = numbered(spec, size)
    grid, source = spec.pad(x), pad_for_tables(spec, x)
    if spec.transposed:
        seen = grid[grid != 0]
        assert torch.equal(source.flatten() if len(seen) else source[source != 0], seen)
        assert len(seen) or source.shape == grid.shape
        return
    own = convolution_padding(spec)
    assert torch.equal(F.pad(source, reversed_pads((zeros, zeros) for zeros in own)), grid)
    if spec.padding_mode == "zeros" and all(before == after for before, after in spec.pads_at(size)):
        assert spec.is_uneven or source is x


def layer(alpha: float | None = None) -> SelfAttention2d:
    """A small layer."""
    return attention_from_conv(nn.Conv2d(2, 2, 3, padding=1), alpha=alpha)


def test_what_is_learned_is_refused_by_engines_that_need_numbers() -> None:
    with_content, tables, trained = layer(), layer(), layer()
    with_content.add_content(2)
    tables.set_axis_scores(torch.zeros(9, 9), torch.zeros(9, 9))
    trained.train_positions()
    for name in ("sdpa", "factored"):
        found = [str(ENGINES[name].refusal(each.values())) for each in (with_content, tables, trained)]
        assert found[:2] == ["the layer has content terms", "the positional scores are learned tables"]
        assert "positions are trained" in found[2]


def test_the_factored_engine_refuses_what_is_no_smoothing_before_a_convolution() -> None:
    moved, mixed = layer(2.0), layer(2.0)
    move_center(moved, (2, 0), 0.5)
    set_alpha(mixed, 1, 3.0)
    assert ENGINES["factored"].refusal(moved.values()) == "a head's centre is not at its kernel tap"
    assert ENGINES["factored"].refusal(mixed.values()) == "the heads do not share one alpha"


def test_auto_takes_the_most_special_engine_that_is_exact() -> None:
    moved, joined, tables = layer(2.0), layer(2.0), layer(2.0)
    move_center(moved, 0, 0.5)
    joined.add_content(4)
    tables.set_axis_scores(torch.zeros(9, 9), torch.zeros(9, 9))
    found = [choose_engine(each.values(), AUTO).name for each in (layer(), layer(2.0), moved, joined, tables)]
    assert found == ["factored", "factored", "separable", "separable", "separable"]
    joined.set_axis_scores(torch.zeros(9, 9), torch.zeros(9, 9))
    assert choose_engine(joined.values(), AUTO).name == "literal"


@pytest.mark.parametrize("name", ["sdpa", "separable"])
def test_an_engine_estimates_its_memory_before_it_takes_it(name: str) -> None:
    made, x = layer(), torch.zeros(3, 2, 40, 50)
    made.engine, made.memory_limit = name, 0  # at which the separable engine takes one image at a time
    made.memory_limit = ENGINES[name].cost(made.values(), Size(40, 50), batch=3).bytes
    made(x)
    made.memory_limit -= 1
    with pytest.raises(EngineError, match=f"the {name} engine needs .* for 9 heads, input 40x50, batch 3"):
        made(x)


def test_the_error_of_auto_is_the_largest_of_the_engines_that_it_may_choose() -> None:
    soft = layer(2.0)
    errors = {name: engine_error(soft.values(), name) for name in ("literal", "separable", "factored")}
    assert len(set(errors.values())) == 3
    assert engine_error(soft.values(), AUTO) == max(errors.values()) < engine_error(soft.values(), "sdpa")


def test_an_engine_that_says_nothing_of_its_rounding_has_no_known_error() -> None:
    assert Engine.error(ENGINES["literal"], layer().values()) == math.inf
