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
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.errors import GeometryError
from conv2attn.convert.spec import CONVOLUTIONS, Convolution
from conv2attn.proofs.campaign.strategies import conv_specs, convolutions_with_input, every_spec, input_sizes
from tests.integers import integers, with_integers

LAYERS = {1: SelfAttention1d, 2: SelfAttention2d, 3: SelfAttention3d}


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


@settings(max_examples=40)
@given(every_spec().flatmap(lambda spec: st.tuples(st.just(spec), input_sizes(spec))), st.integers(0, 2**32 - 1))
def test_each_head_looks_at_its_tap_of_the_key_grid(case: tuple[ConvSpec, Size], seed: int) -> None:
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


@pytest.mark.parametrize(
    ("axes", "engine"), [(1, "literal"), (1, "soft"), (2, "auto"), (2, "separable"), (3, "soft"), (3, "sdpa")]
)
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


@given(conv_specs(max_kernel=3), st.tuples(*[st.integers(1, 3)] * 2), st.tuples(*[st.integers(1, 9)] * 2))
def test_padding_that_depends_on_the_size_keeps_every_stride_th_pixel(
    drawn: ConvSpec, stride: tuple[int, int], size: tuple[int, int]
) -> None:
    arguments = drawn.arguments() | {"padding_mode": "zeros", "stride": stride}
    upper, lower = (ConvSpec(**arguments | {"padding": padding}) for padding in ("same_upper", "same_lower"))
    kept = [math.ceil(n / s) for n, s in zip(size, stride, strict=True)]
    for axis, (n, s, d, k) in enumerate(zip(size, stride, upper.dilation, upper.kernel_size, strict=True)):
        total = max((kept[axis] - 1) * s + d * (k - 1) + 1 - n, 0)
        assert upper.pads_at(size)[axis] == lower.pads_at(size)[axis][::-1] == (total // 2, total - total // 2)
    assert list(upper.output_size(Size(*size))) == list(lower.output_size(Size(*size))) == kept


@pytest.mark.parametrize("conv", [nn.Conv1d(2, 3, 3), nn.Conv3d(2, 3, 2), nn.ConvTranspose2d(2, 3, 3, stride=2)])
def test_tables_of_scores_work_along_every_axis(conv: Convolution) -> None:
    layer = attention_from_conv(conv.double())
    axes, x = layer.spec.axes, torch.randn(2, 2, *(6, 5, 4)[: layer.spec.axes], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    layer.set_axis_scores(*(torch.randn(layer.num_heads, 41, generator=generator) for _ in range(axes)))
    layer.engine = "literal"
    expected = layer(x)
    layer.engine = "separable"
    largest = x.abs().max() * layer.kernel.detach().abs().flatten(1).sum(1).max()
    assert (layer(x) - expected).abs().max() <= largest * 2.0**-40  # thousands of roundings of 2^-53


# What the convolution's forward computes, whatever its attributes say


@pytest.mark.parametrize(("transposed", "groups"), [(False, 2), (True, 1)])
def test_a_weight_of_other_channels_and_taps_is_converted_as_it_is_computed(transposed: bool, groups: int) -> None:
    kind: Any = nn.ConvTranspose2d if transposed else nn.Conv2d
    conv = kind(6, 4, 3, padding=1, groups=groups, bias=False)
    conv.weight = nn.Parameter(integers(4, 2, 2, 3))
    x = integers(2, 4 if transposed else 2 * groups, 5, 6)
    for engine in ENGINES:
        layer = attention_from_conv(conv, engine=engine)
        assert torch.equal(layer(x), conv(x))
    assert torch.equal(conv_from_attention(layer)(x), conv(x))


@pytest.mark.parametrize("change", [{"stride": 1}, {"dilation": 2, "padding": 2}])
def test_one_integer_stands_for_every_axis(change: dict[str, Any]) -> None:
    conv = with_integers(nn.Conv2d(3, 4, 3, stride=2, padding=1))
    for name, value in change.items():
        setattr(conv, name, value)
    x = integers(2, 3, 9, 8)
    for engine in ENGINES:
        assert torch.equal(attention_from_conv(conv, engine=engine)(x), conv(x))


@pytest.mark.parametrize(("alpha", "engine"), [*((None, engine) for engine in ENGINES), (2.0, "auto")])
def test_no_images_give_no_outputs(alpha: float | None, engine: str) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=alpha, engine=engine)
    assert layer(torch.zeros(0, 2, 5, 6)).shape == (0, 3, 5, 6)
    layer.engine = "auto"
    layer.train_positions()
    assert layer(torch.zeros(0, 2, 5, 6)).shape == (0, 3, 5, 6)


class Tied(nn.Module):
    """An autoencoder whose decoder has its encoder's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.bias = nn.Conv2d(3, 6, 3, padding=1), nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(torch.relu(self.encoder(x)), self.encoder.weight, self.bias, padding=1)


def test_a_weight_that_two_calls_use_is_converted_in_both() -> None:
    network, x = Tied().eval(), torch.randn(2, 3, 12, 12)
    model, report = convert_model(network, trace=True)
    assert len(report.layers) == 2
    assert torch.equal(model(x), network(x))
    assert torch.equal(restore_model(model)(x), network(x))
