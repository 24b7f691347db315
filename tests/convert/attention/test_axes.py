"""Layers along one, two and three axes, transposed or not, are the convolutions they were made from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    SelfAttention,
    SelfAttention1d,
    SelfAttention2d,
    SelfAttention3d,
    attention_from_conv,
    conv_from_attention,
    convert_model,
    restore_model,
)
from conv2attn.convert.errors import GeometryError
from conv2attn.convert.spec import CONVOLUTIONS, Convolution
from conv2attn.proofs.evidence.strategies import conv_specs, convolutions_with_input, every_spec, input_sizes
from tests.integers import integers, with_integers

LAYERS = {1: SelfAttention1d, 2: SelfAttention2d, 3: SelfAttention3d}
ENGINES = ("literal", "sdpa", "separable", "factored", "auto")


@given(every_spec().flatmap(lambda spec: convolutions_with_input(specs=st.just(spec))))
def test_every_convolution_comes_back_as_it_was(case: tuple[Convolution, Tensor]) -> None:
    conv, x = case
    layer = attention_from_conv(conv)
    assert type(layer) is LAYERS[layer.spec.axes]
    back = conv_from_attention(layer)
    assert type(back) is type(conv)
    assert repr(back) == repr(conv)
    assert all(torch.equal(a, b) for a, b in zip(back.parameters(), conv.parameters(), strict=True))
    assert ConvSpec.from_json(layer.spec.to_json()) == layer.spec
    assert torch.equal(layer(x[0]), layer(x[:1])[0])


def test_a_stuffed_input_has_zeros_between_its_pixels() -> None:
    spec = ConvSpec(1, 1, (2,), stride=(3,), padding=(0,), transposed=True, output_padding=(2,))
    x = torch.tensor([[[1.0, 2.0, 3.0]]])
    assert spec.pad(x).flatten().tolist() == [0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 0]
    cropped = ConvSpec(1, 1, (2,), stride=(3,), padding=(2,), transposed=True)
    assert cropped.pad(x).flatten().tolist() == [0, 0, 2, 0, 0]


@settings(max_examples=40)
@given(every_spec().flatmap(lambda spec: st.tuples(st.just(spec), input_sizes(spec))), st.integers(0, 2**32 - 1))
def test_each_head_looks_at_its_tap_of_the_key_grid(case: tuple[ConvSpec, Any], seed: int) -> None:
    spec, size = case
    layer = SelfAttention(spec)
    output = spec.output_size(size)
    generator = torch.Generator().manual_seed(seed)
    query = tuple(int(torch.randint(length, (), generator=generator)) for length in output)
    maps = layer.attention_probabilities(size, queries=[query])[:, 0]
    assert maps.shape[1:] == torch.Size(spec.padded_size(size))
    places = [along[number] for along, number in zip(spec.query_positions(size), query, strict=True)]
    for head, offset in enumerate(spec.tap_offsets):
        target = tuple(place + step for place, step in zip(places, offset, strict=True))
        assert maps[head].sum() == maps[head][target] == 1


@pytest.mark.parametrize("engine", [*ENGINES, "soft"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_transposed_layer_takes_an_output_size_as_its_class_does(axes: int, engine: str) -> None:
    kind = CONVOLUTIONS[axes, True]
    conv = with_integers(kind(2, 3, 2, stride=3, padding=1, dilation=2, dtype=torch.float64))
    x = integers(2, 2, *((4,), (3, 2), (2, 1, 2))[axes - 1], dtype=torch.float64)
    soft = engine == "soft"
    layer = attention_from_conv(conv, alpha=1.0 if soft else None, engine="auto" if soft else engine)
    plain = conv(x).shape[2:]
    for added in {(0,) * axes, (2,) * axes, tuple(range(axes))}:
        wanted = [length + more for length, more in zip(plain, added, strict=True)]
        expected = conv(x, output_size=wanted)
        if soft:
            other = kind(**{**layer.spec.arguments(), "output_padding": added}, dtype=torch.float64)
            other.load_state_dict(conv.state_dict())
            expected = attention_from_conv(other, alpha=1.0)(x)
        for given_size in (wanted, [2, 3, *wanted]):
            assert torch.equal(layer(x, output_size=given_size), expected)
    for wrong in ([length + 3 for length in plain], [length - 1 for length in plain], [1]):
        with pytest.raises(GeometryError, match=r"gives outputs from|axes"):
            layer(x, output_size=wrong)


def test_only_a_transposed_layer_takes_an_output_size() -> None:
    with pytest.raises(GeometryError, match="only a transposed convolution"):
        attention_from_conv(nn.Conv2d(1, 1, 1))(torch.ones(1, 1, 3, 3), output_size=[3, 3])


@pytest.mark.parametrize("padding", ["same_upper", "same_lower"])
@given(st.integers(1, 3).flatmap(lambda axes: conv_specs(max_kernel=3, max_channels=2, axes=axes)), st.data())
def test_padding_that_depends_on_the_size_keeps_every_stride_th_pixel(
    padding: Any, drawn: ConvSpec, data: st.DataObject
) -> None:
    arguments = drawn.arguments() | {"padding": padding, "padding_mode": "zeros", "bias": False}
    stride = tuple(data.draw(st.integers(1, 3)) for _ in range(drawn.axes))
    spec = ConvSpec(**arguments | {"stride": stride})
    size = [data.draw(st.integers(1, 6)) for _ in range(drawn.axes)]
    layer = with_integers(SelfAttention(spec, dtype=torch.float64))
    x = integers(2, spec.in_channels, *size, dtype=torch.float64)
    pads: list[int] = []
    for n, s, d, k in zip(size, stride, spec.dilation, spec.kernel_size, strict=True):
        total = max((math.ceil(n / s) - 1) * s + d * (k - 1) + 1 - n, 0)
        small, large = total // 2, total - total // 2
        pads = [*((small, large) if padding == "same_upper" else (large, small)), *pads]
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[spec.axes - 1]
    expected = convolve(F.pad(x, pads), layer.weight, None, stride, 0, spec.dilation, spec.groups)
    assert list(expected.shape[2:]) == [math.ceil(n / s) for n, s in zip(size, stride, strict=True)]
    assert torch.equal(layer(x), expected)
    assert torch.equal(conv_from_attention(layer)(x), expected)


def test_a_layer_is_of_its_own_axes() -> None:
    with pytest.raises(ConversionError, match="SelfAttention1d has 1 axes"):
        SelfAttention1d(ConvSpec(1, 1, (3, 3)))
    with pytest.raises(GeometryError, match=r"input must be \[batch, 1, length\]"):
        attention_from_conv(nn.Conv1d(1, 1, 3))(torch.ones(1, 1, 3, 3))
    with pytest.raises(GeometryError, match=r"\[batch, 1, planes, rows, columns\]"):
        attention_from_conv(nn.Conv3d(1, 1, 3))(torch.ones(1, 3, 3))


class Decoder(nn.Module):
    """Sound, images and films in one network."""

    def __init__(self) -> None:
        super().__init__()
        self.sound = nn.Sequential(nn.Conv1d(1, 4, 5, stride=2), nn.ConvTranspose1d(4, 2, 4, stride=2))
        self.image = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ConvTranspose2d(4, 2, 2, stride=2))
        self.film = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ConvTranspose3d(4, 2, 2, stride=2))

    def forward(self, sound: Tensor, image: Tensor, film: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.sound(sound), self.image(image), self.film(film)


def test_a_network_of_all_of_them_is_converted_and_restored_bit_for_bit() -> None:
    model = Decoder().eval()
    inputs = torch.randn(2, 1, 30), torch.randn(2, 1, 6, 7), torch.randn(2, 1, 4, 5, 6)
    converted, report = convert_model(model)
    assert len(report.layers) == 6
    assert all(torch.equal(a, b) for a, b in zip(converted(*inputs), model(*inputs), strict=True))
    restored = restore_model(converted)
    assert repr(restored) == repr(model)
    assert all(torch.equal(a, b) for a, b in zip(restored(*inputs), model(*inputs), strict=True))
    state, before = converted.state_dict(), model.state_dict()
    assert all(torch.equal(state[key], value) for key, value in before.items())


@pytest.mark.parametrize("conv", [nn.Conv1d(2, 3, 3), nn.Conv3d(2, 3, 2), nn.ConvTranspose2d(2, 3, 3, stride=2)])
def test_tables_of_scores_and_content_work_along_every_axis(conv: Convolution) -> None:
    layer = attention_from_conv(conv.double())
    axes, x = layer.spec.axes, torch.randn(2, 2, *(6, 5, 4)[: layer.spec.axes], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    layer.set_axis_scores(*(torch.randn(layer.num_heads, 41, generator=generator) for _ in range(axes)))
    layer.engine = "literal"
    expected = layer(x)
    layer.engine = "separable"
    largest = x.abs().max() * layer.kernel.detach().abs().flatten(1).sum(1).max()
    assert (layer(x) - expected).abs().max() <= largest * 2.0**-40  # thousands of roundings of 2^-53
    layer.axis_scores = None
    layer.add_content(3)
    layer.engine = "literal"
    with_content = layer(x)
    layer.content = None
    assert (with_content - layer(x)).abs().max() <= largest * 2.0**-40
    with pytest.raises(GeometryError, match="a score table for each"):
        layer.set_axis_scores(*(torch.zeros(layer.num_heads, 3) for _ in range(axes + 1)))
