"""ConvSpec agrees with nn.Conv2d on everything that it says."""

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import GeometryError
from conv2attn.convert.spec import CONVOLUTIONS, ConvSpec, Padding, PaddingMode
from conv2attn.proofs.campaign.strategies import conv_specs, convolution_of, every_spec, input_sizes
from tests.integers import integers, with_integers


@given(every_spec().flatmap(lambda spec: st.tuples(st.just(spec), input_sizes(spec))))
def test_the_key_grid_and_the_output_size_are_those_of_the_convolution(case: tuple[ConvSpec, Size]) -> None:
    spec, size = case
    conv = with_integers(CONVOLUTIONS[spec.axes, spec.transposed](**spec.arguments(), dtype=torch.float64))
    x = integers(2, spec.in_channels, *size, dtype=torch.float64)
    padded, convolve = spec.pad(x), (F.conv1d, F.conv2d, F.conv3d)[spec.axes - 1]
    without = convolve(padded, spec.kernel(conv.weight), conv.bias, spec.query_stride, 0, spec.dilation, spec.groups)
    assert padded.shape[2:] == torch.Size(spec.padded_size(size))
    assert conv(x).shape[2:] == torch.Size(spec.output_size(size))
    assert torch.equal(without, conv(x))


@given(conv_specs(), st.integers(0, 8), st.integers(0, 8))
def test_a_size_is_refused_exactly_when_the_convolution_refuses_it(spec: ConvSpec, rows: int, columns: int) -> None:
    try:
        convolution_of(spec)(torch.zeros(1, spec.in_channels, rows, columns))
    except RuntimeError:
        with pytest.raises(GeometryError):
            spec.output_size(Size(rows, columns))
    else:
        spec.output_size(Size(rows, columns))


def test_same_padding_puts_the_odd_pixel_at_the_bottom_right() -> None:
    spec = ConvSpec(1, 1, kernel_size=(4, 2), dilation=(1, 3), padding="same")
    assert spec.pads == ((1, 2), (1, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel_size": (0, 3)},
        {"stride": (0, 1)},
        {"dilation": (1, 0)},
        {"groups": 2},
        {"padding": (-1, 0)},
        {"padding": "full"},
        {"padding_mode": "mirror"},
        {"padding": "same", "stride": (2, 1)},
    ],
)
def test_an_impossible_geometry_is_refused(wrong: dict[str, object]) -> None:
    data = ConvSpec(3, 5, kernel_size=(3, 3)).to_json()
    with pytest.raises(GeometryError):
        ConvSpec.from_json(data | wrong)


def test_a_geometry_is_named_without_its_defaults() -> None:
    assert str(ConvSpec(3, 16, (3, 2))) == "3x2, 3->16"
    everything = ConvSpec(
        4, 8, (1, 5), stride=(1, 2), dilation=(3, 3), padding=(0, 1), padding_mode="circular", groups=2, bias=False
    )
    assert str(everything) == "1x5, 4->8, stride 1x2, dilation 3, padding 0x1, groups 2, circular"
    assert str(ConvSpec(1, 1, (2, 2), padding="same")) == "2x2, 1->1, padding same"


@pytest.mark.parametrize("padding", ["same", "same_upper", (1, 0)])
def test_zeros_are_added_where_zeros_are_the_padding(padding: Padding) -> None:
    for mode in get_args(PaddingMode):
        assert ConvSpec(2, 2, (3, 2), padding=padding, padding_mode=mode).adds_zeros == (mode == "zeros")


NOT_NUMBERS: list[object] = [None, True, 1.0, "3", 2**31, -(10**30), [3]]
NOT_PAIRS: list[object] = [None, "3", 3, [3], [1, 2, 3], [1.0, 1], [True, 1], [1, 2**31], [[1, 1], 1]]
WRONG_TYPES: dict[str, list[object]] = {
    **dict.fromkeys(("in_channels", "out_channels", "groups"), NOT_NUMBERS),
    **dict.fromkeys(("stride", "dilation", "padding"), NOT_PAIRS),
    "kernel_size": [value for value in NOT_PAIRS if value not in ([3], [1, 2, 3])],  # which have other axes
    "padding_mode": [None, 1, ["zeros"], "x" * 1000],
    "bias": [None, 1, "true"],
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_a_geometry_of_another_type_or_length_is_refused_with_one_sentence(name: str) -> None:
    data = ConvSpec(3, 5, kernel_size=(3, 3)).to_json()
    for value in WRONG_TYPES[name]:
        with pytest.raises(GeometryError, match=f"{name} must be .*; got") as caught:
            ConvSpec.from_json(data | {name: value})
        assert len(str(caught.value)) < 200
