"""What other people's attention computes, the layer read from it computes; the rest is refused in one sentence."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, attention_from_conv
from conv2attn.convert.export.gpsa import GatedPositionalAttention, gpsa_from_attention
from conv2attn.convert.export.multihead import multihead_from_attention
from conv2attn.learn import attention_from
from conv2attn.learn.heads.attention import HeadAttention
from tests.learn.imported.modules import GaussianAttention
from tests.small_models import assert_same_state

SIDE, SIZE = 5, (4, 6)
# In double precision, u = 2^-53. Scores stay below 2^9 and take less than 2^5 roundings, so they are off by at most
# 2^-39, a probability by 2^-37 of itself, and an output, whose products add up to less than 2^7, by 2^-30.
ROUNDING = 2.0**-30


def gpsa(dtype: torch.dtype = torch.float64, gate: float = 128.0) -> GatedPositionalAttention:
    """Three heads of random positions, one of which looks away from the query."""
    module = GatedPositionalAttention(12, 3, dtype=dtype)
    with torch.no_grad():
        module.gating_param.fill_(gate)
        module.pos_proj.weight.copy_(torch.randn(3, 3))
    return module


def read(module: nn.Module, **options: object) -> HeadAttention:
    layer = attention_from(module, **options)  # type: ignore[arg-type]
    assert isinstance(layer, HeadAttention)
    return layer


def tokens_of(image: Tensor) -> Tensor:
    return image.flatten(1, 2)


@torch.no_grad()
def test_gpsa_with_open_gates_is_computed_and_looks_where_it_looks() -> None:
    module = gpsa()
    layer = read(module)
    x = torch.randn(2, SIDE, SIDE, 12, dtype=torch.float64)
    assert (module(tokens_of(x)) - tokens_of(layer(x))).abs().max() < ROUNDING
    maps = layer.probabilities(layer.grid(SIDE, SIDE))
    assert (module.attention_probabilities(tokens_of(x))[1] - maps).abs().max() < ROUNDING


def test_gpsa_that_looks_at_content_is_refused_and_its_positions_can_be_taken() -> None:
    module = gpsa(gate=1.0)
    with pytest.raises(ConversionError, match=r"let content have up to 0\.269 of a head's attention"):
        attention_from(module)
    alone = read(module, positions_alone=True)
    with torch.no_grad():
        module.gating_param.fill_(128)
        x = torch.randn(1, SIDE, SIDE, 12, dtype=torch.float64)
        assert (module(tokens_of(x)) - tokens_of(alone(x))).abs().max() < ROUNDING


@pytest.mark.parametrize("isotropic", [True, False])
@torch.no_grad()
def test_the_authors_gaussian_attention_is_computed_with_its_own_projections(isotropic: bool) -> None:
    module = GaussianAttention(8, 5, isotropic=isotropic).double()
    layer = read(module)
    x = torch.randn(2, *SIZE, 8, dtype=torch.float64)
    assert (module(x, None) - layer(x)).abs().max() < ROUNDING
    assert (module.attention_probabilities(*SIZE) - layer.probabilities(layer.grid(*SIZE))).abs().max() < ROUNDING
    assert torch.equal(layer.weight.flatten(1), module.value.weight)


@pytest.mark.parametrize(("kdim", "bias"), [(None, True), (7, False)])
@torch.no_grad()
def test_multihead_attention_over_positions_is_computed(kdim: int | None, bias: bool) -> None:
    module = nn.MultiheadAttention(12, 3, kdim=kdim, vdim=kdim, bias=bias, batch_first=True).double()
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape))
    pixels = SIZE[0] * SIZE[1]
    tokens, keys = (torch.randn(pixels, width, dtype=torch.float64) / 4 for width in (12, kdim or 12))
    layer = read(module, tokens=tokens, keys=keys, size=SIZE)
    x = torch.randn(2, *SIZE, kdim or 12, dtype=torch.float64)
    output, maps = module(tokens.expand(2, -1, -1), keys.expand(2, -1, -1), tokens_of(x), average_attn_weights=False)
    assert (output - tokens_of(layer(x))).abs().max() < ROUNDING
    assert (maps[0] - layer.probabilities(layer.grid(*SIZE))).abs().max() < ROUNDING


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (None, "does not know positions"),
        (torch.zeros(25, 8), r"tokens and keys must be \[\[24, 8\]"),
    ],
)
def test_multihead_attention_without_its_positions_is_refused(tokens: Tensor | None, said: str) -> None:
    with pytest.raises(ConversionError, match=said):
        attention_from(nn.MultiheadAttention(8, 2), tokens=tokens, size=SIZE)


@pytest.mark.parametrize("way", [multihead_from_attention, gpsa_from_attention])
def test_what_was_exported_comes_back_bit_for_bit(way: Callable[..., nn.Module]) -> None:
    layer = attention_from_conv(nn.Conv2d(3, 5, 3, padding=1))
    again = attention_from(way(layer, size=(SIDE, SIDE)))
    assert_same_state(again, layer)


class Transposed(GatedPositionalAttention):
    """Takes rows for columns, which no part of it shows."""

    def attention_probabilities(self, x: Tensor) -> Tensor:
        """Those of the image whose rows are its columns."""
        other = x.unflatten(1, (SIDE, SIDE)).transpose(1, 2).flatten(1, 2)
        maps = super().attention_probabilities(other).unflatten(3, (SIDE, SIDE)).unflatten(2, (SIDE, SIDE))
        swapped: Tensor = maps.transpose(2, 3).transpose(4, 5).flatten(4, 5).flatten(2, 3)
        return swapped


def test_a_module_with_the_parts_of_gpsa_that_computes_something_else_is_refused() -> None:
    with pytest.raises(ConversionError, match="Transposed computes something else than its parts say"):
        attention_from(Transposed(12, 3), positions_alone=True)


def test_a_module_is_left_as_it_was() -> None:
    module = gpsa().eval()
    before = copy.deepcopy(module)
    assert not attention_from(module).training
    assert_same_state(module, before)


def test_other_modules_are_refused_by_name() -> None:
    with pytest.raises(ConversionError, match="Linear has the parts of no attention known here"):
        attention_from(nn.Linear(3, 3))
    with pytest.raises(ConversionError, match=r"module must be a torch\.nn\.Module"):
        attention_from("gpsa")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "parts", "said"),
    [
        (gpsa(torch.float16), {}, "must be all float32 or all float64"),
        (gpsa(), {"gating_param": nn.Parameter(torch.full((3,), torch.inf).double())}, "not all finite"),
        (gpsa(), {"pos_proj": nn.Linear(2, 3, dtype=torch.float64)}, "do not fit 3 heads"),
        (GaussianAttention(4, 3, isotropic=True), {"attention_gaussian_blur_trick": True}, "blurs with 7 x 7 kernels"),
    ],
)
def test_numbers_and_shapes_of_another_kind_are_refused(module: nn.Module, parts: dict[str, object], said: str) -> None:
    for name, part in parts.items():
        setattr(module, name, part)
    with pytest.raises(ConversionError, match=said):
        attention_from(module)
