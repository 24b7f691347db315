"""Spare heads add exactly 0 while W_out is 0, and are attention over the unpadded input once it is not."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conv2attn.convert import ConversionError, SelfAttention, attention_from_conv, certify, conv_from_attention
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.layer.construction import attention_with
from conv2attn.convert.layer.spare import SpareHeads
from conv2attn.convert.spec import CONVOLUTIONS
from conv2attn.convert.subclasses.padded import convolution, has_class
from conv2attn.proofs.campaign.layers import RandomLayer, draw_layer
from tests.bits import same_bits
from tests.integers import integers, with_integers
from tests.small_models import with_trained_heads

DTYPES = ("float64", "float32", "bfloat16")
HEADS = [
    SpareHeads(heads, 5, 3, beside, positions) for heads, beside, positions in [(1, False, False), (2, True, True)]
]
Context = Callable[[], AbstractContextManager[Any]]


def layers(conv: nn.Module, heads: SpareHeads) -> SelfAttention:
    """The convolution's layer over copies of its parameters, with spare heads."""
    layer = attention_with(copy.deepcopy(conv))  # type: ignore[arg-type]
    layer.add_spare_heads(replace(heads, seed=1))
    return layer


def results(layer: nn.Module, x: Tensor, context: Context = nullcontext) -> list[Tensor]:
    """The output, and the gradients of the input and of the convolution's parameters."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    with context():
        y = layer(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y))
    own = [p.grad for name, p in layer.named_parameters() if not name.startswith("spare") and p.grad is not None]
    return [y.detach(), x.grad, *own]


def check_bits(conv: nn.Module, layer: nn.Module, x: Tensor, context: Context = nullcontext) -> None:
    for expected, found in zip(results(conv, x, context), results(layer, x, context), strict=True):
        assert same_bits(expected, found)
        assert expected.stride() == found.stride()


def drawn_conv(drawn: RandomLayer) -> nn.Module:
    torch.manual_seed(drawn.seed)
    spec = drawn.spec
    return (convolution(spec) if has_class(spec) else CONVOLUTIONS[spec.axes, False](spec.in_channels, 2, 1)).to(
        drawn.torch_dtype
    )


@given(st.integers(0, 2**31), st.sampled_from(DTYPES), st.booleans(), st.booleans(), st.booleans())
def test_a_layer_with_spare_heads_has_the_bits_and_strides_of_its_convolution(
    index: int, dtype: str, beside: bool, positions: bool, mixed: bool
) -> None:
    drawn = draw_layer(0, index, dtypes=(dtype,), max_size=12)
    conv = drawn_conv(drawn)
    heads = SpareHeads(2, 5, 3, beside and not drawn.spec.transposed, positions)
    x = drawn.lay_out(torch.randn(drawn.batch, drawn.spec.in_channels, *drawn.size, dtype=drawn.torch_dtype))
    context = partial(torch.autocast, "cpu", dtype=torch.bfloat16) if mixed and dtype == "float32" else nullcontext
    check_bits(conv, layers(conv, heads), x, context)


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_an_image_without_a_batch_has_the_bits_of_the_convolution(heads: SpareHeads) -> None:
    conv = nn.Conv2d(4, 6, 3, stride=(2, 1), padding=1, groups=2)
    check_bits(conv, layers(conv, heads), torch.randn(4, 9, 7))


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_every_engine_adds_trained_heads_to_what_it_computes(heads: SpareHeads) -> None:
    layer, x = with_trained_heads(layers(with_integers(nn.Conv2d(2, 3, 3, padding=1)), heads)), integers(2, 2, 5, 6)
    outputs = {}
    for layer.engine in ENGINES:
        added = -layer.negated_sum(heads, x, layer.spec)
        bare = copy.deepcopy(layer)
        bare.remove_spare_heads()
        outputs[layer.engine] = layer(x)
        assert torch.equal(outputs[layer.engine], bare(x) + added if heads.beside else bare(x + added))
        assert not torch.equal(outputs[layer.engine], bare(x))


def test_a_planted_start_of_w_out_is_noticed() -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1)
    layer = layers(conv, HEADS[0])
    layer.spare_out.data.fill_(1e-3)
    with pytest.raises(AssertionError):
        check_bits(conv, layer, torch.randn(2, 4, 5, 6))


def test_a_planted_order_of_summands_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    conv = nn.Conv2d(4, 6, 1)
    layer = layers(conv, SpareHeads(1, 5, 3, beside=True))

    def turned(self: SelfAttention, heads: SpareHeads, x: Tensor, spec: Any, average: Any) -> Any:
        y = self._taps(x, spec, average)
        return -self.negated_sum(heads, x, spec) + torch.as_tensor(y)

    monkeypatch.setattr(SelfAttention, "_with_spare_heads", turned)
    with pytest.raises(AssertionError):
        check_bits(conv, layer, torch.randn(2, 4, 5, 6))


@given(st.integers(1, 3), st.data())
def test_heads_with_positions_beside_the_taps_are_the_heads_of_the_theorem(axes: int, data: st.DataObject) -> None:
    """A layer of no kernel at all, whose spare heads stand where a convolution's heads do, is that convolution."""

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(axes))

    kernel, stride, dilation = numbers(1, 3), numbers(1, 2), numbers(1, 2)
    kind: Any = CONVOLUTIONS[axes, False]
    conv = with_integers(kind(2, 3, kernel, stride=stride, dilation=dilation, bias=False))
    layer = attention_from_conv(conv)
    nn.init.zeros_(layer.weight)
    taps = torch.tensor(layer.spec.tap_offsets, dtype=torch.float32)
    layer.add_spare_heads(SpareHeads(len(taps), 1, 2, beside=True, positions=True))
    layer.spare_query_bias.data.zero_()
    layer.spare_query.data.zero_()
    layer.spare_position.data = -200.0 * torch.cat([torch.ones(len(taps), 1), -2 * taps], 1)
    layer.spare_value.data = torch.eye(2).repeat(len(taps), 1)
    layer.spare_out.data = conv.weight.detach().flatten(2).transpose(1, 2).flatten(1)  # [out, taps * in]
    x = integers(2, 2, *(d * (k - 1) + 1 + more for k, d, more in zip(kernel, dilation, numbers(0, 4), strict=True)))
    assert torch.equal(layer(x), conv(x))


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_heads_in_front_attend_to_the_pixels_of_the_unpadded_input_by_content(kind: Any) -> None:
    """Pixel i holds the unit vector i, asks for the pixel that holds unit vector order[i], and gets it alone."""
    rows, columns = 3, 4
    count = rows * columns
    order = torch.randperm(count)
    conv = with_integers(kind(count, 3, 3, stride=2, padding=1, groups=1))
    layer = layers(conv, SpareHeads(1, count, count))
    layer.spare_query_bias.data.zero_()
    layer.spare_query.data = 2_000 * torch.eye(count)[order].T
    layer.spare_key.data = torch.eye(count)
    layer.spare_value.data = torch.eye(count)
    layer.spare_out.data = integers(count, count)
    x = torch.eye(count).unflatten(1, (rows, columns)).unsqueeze(0)
    seen = torch.eye(count)[:, order].unflatten(1, (rows, columns)).unsqueeze(0)  # channels of the pixels asked for
    expected = conv(x + torch.einsum("oc,bcrk->bork", layer.spare_out, seen))
    assert torch.equal(layer(x), expected)
    maps = layer.attention_probabilities((rows, columns), heads=[9], x=x)
    assert maps.shape[:2] == (1, 1)
    assert set(maps.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_the_maps_of_spare_heads_are_distributions_over_the_input_and_zero_at_padding(heads: SpareHeads) -> None:
    layer = with_trained_heads(layers(nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), heads))
    x, size = torch.randn(2, 2, 6, 5), (6, 5)
    maps = layer.attention_probabilities(size, heads=range(6, 6 + heads.heads), x=x)
    assert maps.shape == (2, heads.heads, 12, 8, 5)
    assert not maps[..., 0, :].any()
    assert not maps[..., -1, :].any()
    assert torch.equal(maps.flatten(3).sum(-1).round(decimals=3), torch.ones(2, heads.heads, 12))


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_a_layer_whose_heads_are_at_0_is_its_convolution(heads: SpareHeads) -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=2)
    layer = layers(conv, heads)
    assert certify(layer, input_range=(-1, 1)) == certify(attention_from_conv(conv), input_range=(-1, 1))
    assert torch.equal(conv_from_attention(layer).weight, conv.weight)


def test_a_planted_key_that_is_not_saved_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SelfAttention._save_to_state_dict

    def forgetful(self: SelfAttention, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        honest(self, destination, prefix, keep_vars)
        destination.pop(prefix + "spare_key")

    monkeypatch.setattr(SelfAttention, "_save_to_state_dict", forgetful)
    layer = with_trained_heads(layers(nn.Conv2d(4, 6, 3), HEADS[0]))
    with pytest.raises(RuntimeError, match="spare_key"):
        layer.load_state_dict(layer.state_dict())


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_checkpointing_gives_the_same_gradients(heads: SpareHeads) -> None:
    layer, x = with_trained_heads(layers(nn.Conv2d(4, 6, 3), heads)), torch.randn(2, 4, 5, 6)

    def gradients(call: Callable[[Tensor], Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(call(x).square().sum(), layer.spare_parameters()))

    again = partial(checkpoint, layer, use_reentrant=False)
    for one, other in zip(gradients(layer), gradients(again), strict=True):
        assert torch.equal(one, other)
        assert bool(one.any())


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_transforms_and_torch_fx_give_the_same_numbers(heads: SpareHeads) -> None:
    layer, x = with_trained_heads(layers(nn.Conv2d(4, 6, 3), heads)).requires_grad_(False), torch.randn(3, 2, 4, 5, 6)
    with warnings.catch_warnings(action="ignore"):  # that torch maps its attention image by image
        assert torch.equal(torch.vmap(layer)(x), torch.stack(list(map(layer, x))))
        slopes = torch.func.jacrev(layer)(x[0, :1]).flatten(4).flatten(0, 3)
    one = x[0, :1].clone().requires_grad_()
    expected = [torch.autograd.grad(each, one, retain_graph=True)[0].flatten() for each in layer(one).flatten()]
    torch.testing.assert_close(slopes, torch.stack(expected))
    network = nn.Sequential(layer, nn.ReLU())
    assert torch.equal(torch.fx.symbolic_trace(network)(x[0]), network(x[0]))


def test_positions_stay_in_single_precision_in_a_half_layer() -> None:
    layer = layers(nn.Conv2d(4, 6, 3), HEADS[1]).to(torch.bfloat16)
    assert {name for name, p in layer.named_parameters() if p.dtype == torch.float32} == {"spare_position"}


def test_a_nan_reaches_the_whole_output() -> None:
    conv, x = nn.Conv2d(2, 3, 1), torch.zeros(1, 2, 3, 3)
    x[0, 0, 0, 0] = math.nan
    y = layers(conv, HEADS[0])(x)
    assert bool(conv(x)[..., 1:, :].isfinite().all())
    assert bool(y[..., 1:, :].isnan().any())


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_a_state_dict_may_give_its_tensors_to_a_layer(heads: SpareHeads) -> None:
    layer, other = (with_trained_heads(layers(nn.Conv2d(4, 6, 3), heads)) for _ in range(2))
    layer.load_state_dict(other.state_dict(), assign=True)
    x = torch.randn(2, 4, 5, 6)
    assert torch.equal(layer(x), other(x))


def test_batch_norm_is_folded_rightly_or_not_at_all() -> None:
    conv, norm, x = nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6).eval(), torch.randn(2, 4, 5, 6)
    norm.running_var = torch.full((6,), 0.25 - norm.eps)
    for heads in HEADS:
        layer = with_trained_heads(layers(conv, heads)).eval()
        if heads.beside:
            with pytest.raises(ConversionError, match="ungraft"):
                nn.utils.fuse_conv_bn_eval(layer, norm)  # type: ignore[type-var]
        else:
            fused = nn.utils.fuse_conv_bn_eval(layer, norm)  # type: ignore[type-var]
            assert torch.equal(fused(x), layer(x) * 2)


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_no_new_convolution_is_made_of_a_layer_with_trained_heads(heads: SpareHeads) -> None:
    def rebuilt(conv: Any) -> nn.Conv2d:
        """As YOLOv5's ``fuse_conv_and_bn`` and timm's ``reparameterize`` make one."""
        options = {name: getattr(conv, name) for name in ("kernel_size", "stride", "padding", "groups")}
        new = nn.Conv2d(conv.in_channels, conv.out_channels, **options)
        new.load_state_dict({"weight": conv.weight, "bias": conv.bias})
        return new

    layer, x = layers(nn.Conv2d(4, 6, 3, padding=1), heads), torch.randn(2, 4, 5, 6)
    assert torch.equal(rebuilt(layer)(x), layer(x))
    with pytest.raises(ConversionError, match="ungraft"):
        rebuilt(with_trained_heads(layer))
    assert (layer.dilation, layer.kernel_size, layer.padding) == ((1, 1), (3, 3), (1, 1))
