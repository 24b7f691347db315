"""Each form of a layer computes what the layer does, on any batch and size, in every opset that it is for."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.certificate.layer import certify_error
from conv2attn.convert.onnx import grid as heads_module
from conv2attn.convert.onnx.write import FORMS, refusal
from conv2attn.convert.spec import Convolution, ConvSpec
from conv2attn.convert.subclasses.padded import convolution
from tests.integers import integers, with_integers
from tests.onnx_files import layer_network, operators, run

OPSETS = {"separable": (11, 13, 23), "literal": (11, 18, 23)}
SIZES: dict[int, list[tuple[int, ...]]] = {1: [(9,), (14,)], 2: [(7, 9), (10, 8)], 3: [(4, 5, 6), (5, 4, 3)]}


def padded(padding: Any, stride: tuple[int, int], *, transposed: bool = False) -> Convolution:
    return convolution(ConvSpec(2, 3, (3, 2), stride=stride, padding=padding, transposed=transposed))


CONVOLUTIONS: list[Convolution] = [
    nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 2), dilation=(1, 2), groups=2),
    nn.Conv2d(3, 5, 3, bias=False),
    nn.Conv2d(4, 4, 3, groups=4, padding="same", dilation=2),
    nn.Conv1d(4, 6, 3, stride=2, padding=2, groups=2),
    nn.Conv3d(2, 3, (3, 2, 1), padding=(1, 0, 2)),
    nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), padding=(1, 0), output_padding=(1, 2), groups=2, dilation=(2, 1)),
    nn.ConvTranspose1d(2, 3, 4, padding=1),
    nn.ConvTranspose3d(2, 3, 2, stride=2),
    padded("same_upper", (2, 3)),
    padded("same_lower", (3, 2)),
    padded(((0, 1), (3, 0)), (2, 3), transposed=True),
]
each_convolution = pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))


@pytest.mark.parametrize("form", FORMS)
@each_convolution
def test_each_form_gives_the_bits_of_the_convolution_on_integers(number: int, form: str) -> None:
    conv, opset = CONVOLUTIONS[number], OPSETS[form][number % len(OPSETS[form])]
    layer = attention_from_conv(with_integers(conv, largest=4))
    model = layer_network(layer, form, opset)
    onnx.checker.check_model(model, full_check=True)
    assert operators(model.graph).isdisjoint({"Conv", "ConvTranspose"})
    sizes = SIZES[layer.spec.axes]
    for batch, size in ((1, sizes[0]), (2, sizes[1]), (0, sizes[0])):
        x = integers(batch, layer.in_channels, *size)
        (output,) = run(model, x=x.numpy())
        with torch.no_grad():
            assert torch.equal(torch.from_numpy(output), conv(x))


@pytest.mark.parametrize(
    ("form", "alpha", "dtype"),
    [
        ("separable", 1.3, torch.float32),
        ("literal", 1.3, torch.float32),
        ("separable", 2.0, torch.float64),
    ],
)
@each_convolution
def test_soft_attention_is_that_of_the_layer(number: int, form: str, alpha: float, dtype: torch.dtype) -> None:
    layer = attention_from_conv(CONVOLUTIONS[number].to(dtype), alpha=alpha, engine="literal")
    own = certify(layer, input_range=(-1, 1), engine="literal").rounding_attention
    values = layer.values()
    bound = own + certify_error(values, FORMS[form].error(values), input_range=(-1, 1)).rounding_attention
    x = torch.rand(2, layer.in_channels, *SIZES[layer.spec.axes][0], dtype=dtype) * 2 - 1
    (output,) = run(layer_network(layer, form, OPSETS[form][0]), x=x.numpy())
    with torch.no_grad():
        assert (torch.from_numpy(output) - layer(x)).abs().max() <= bound


@pytest.mark.parametrize("conv", [nn.Conv2d(2, 3, (2, 40), stride=(1, 2)), nn.Conv1d(2, 4, 70, 3)])
def test_a_window_of_a_long_kernel_leaves_nothing_out(conv: Convolution) -> None:
    layer = attention_from_conv(with_integers(conv))
    x = integers(2, 2, *([83] if layer.spec.axes == 1 else [47, 59]))
    (output,) = run(layer_network(layer, "separable", 11), x=x.numpy())
    with torch.no_grad():
        assert torch.equal(torch.from_numpy(output), conv(x))


@pytest.mark.parametrize("form", ["separable", "literal"])
def test_heads_that_are_no_grid_keep_their_own_centres(form: str) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, (2, 3), padding=1).double(), alpha=1.5, engine="literal")
    with torch.no_grad():
        layer.set_positions(centers=layer.centers + (torch.randn_like(layer.centers) / 2))
        layer.set_positions(alpha=layer.alpha * (torch.rand_like(layer.alpha) + 0.5))
        x = torch.randn(2, 2, 6, 7).double()
        (output,) = run(layer_network(layer, form, 17), x=x.numpy())
        assert torch.allclose(torch.from_numpy(output), layer(x), rtol=0, atol=1e-12)


def test_content_terms_have_no_form() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 3), alpha=1.3)
    assert refusal(layer.values()) is None
    layer.add_content(2)
    assert "content" in str(refusal(layer.values()))


@pytest.mark.parametrize("form", FORMS)
def test_a_centre_off_by_one_is_seen(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    conv = nn.Conv2d(2, 3, 3)
    layer, true = attention_from_conv(with_integers(conv)), heads_module.Heads.of

    def shifted(values: object) -> heads_module.Heads:
        heads = true(values)  # type: ignore[arg-type]
        moved = tuple((row + 1, column) for row, column in heads.centers)
        return heads_module.Heads(heads.spec, heads.alpha, moved, heads.dtype)

    monkeypatch.setattr(heads_module.Heads, "of", shifted)
    x = integers(1, 2, 6, 7)
    (output,) = run(layer_network(layer, form, 23), x=x.numpy())
    with torch.no_grad():
        assert not torch.equal(torch.from_numpy(output), conv(x))


@pytest.mark.parametrize("stride", [1, 2])
def test_exact_attention_over_a_long_axis_makes_no_table_of_its_keys(stride: int) -> None:
    """A table of 40,000 keys would have 1.6e9 numbers a tap."""
    conv = with_integers(nn.Conv2d(1, 2, 3, stride=(1, stride), padding=1))
    x = integers(1, 1, 3, 40_000)
    (output,) = run(layer_network(attention_from_conv(conv), "separable", 11), x=x.numpy())
    with torch.no_grad():
        assert torch.equal(torch.from_numpy(output), conv(x))
