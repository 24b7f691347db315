"""Layers over sequences and volumes, and transposed ones, are drawn as what they are."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, SelfAttention, attention_from_conv, convert_model, save_converted
from conv2attn.convert.spec import CONVOLUTIONS, Convolution
from conv2attn.proofs.show.pictures.plane import plane_of
from conv2attn.proofs.show.pictures.scene import scenes
from conv2attn.proofs.show.show import PICTURES, View, show

KINDS = [key for key in CONVOLUTIONS if key != (2, False)]


def whole(conv: Convolution) -> Convolution:
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape))
    return conv


def layer_and_input(axes: int, transposed: bool, alpha: float | None = None) -> tuple[SelfAttention, Tensor]:
    conv = whole(CONVOLUTIONS[axes, transposed](2, 4, 3, stride=2, padding=1, groups=2))
    x = torch.randint(-3, 4, (1, 2, *(5, 6, 7)[:axes])).float()
    return attention_from_conv(conv, alpha=alpha), x


@pytest.mark.parametrize(("axes", "transposed"), KINDS)
def test_what_is_drawn_computes_what_the_layer_computes(axes: int, transposed: bool) -> None:
    layer, x = layer_and_input(axes, transposed)
    if axes == 3:  # one plane is drawn, with the taps that lie in it
        with torch.no_grad():
            layer.weight[:, :, ::2] = 0
    plane = plane_of(layer, x)
    expected = layer(x)
    expected = expected.unsqueeze(2) if axes == 1 else expected[:, :, expected.shape[2] // 2] if axes == 3 else expected
    for engine in ("literal", "separable", "factored"):
        plane.layer.engine = engine
        assert torch.equal(plane.layer(plane.x), expected), engine
    assert plane.note is not None


def test_an_image_is_drawn_as_it_is() -> None:
    layer, x = attention_from_conv(nn.Conv2d(2, 3, 3)), torch.zeros(1, 2, 5, 5)
    plane = plane_of(layer, x)
    assert (plane.layer, plane.x, plane.note) == (layer, x, None)


def test_learned_scores_along_other_axes_are_not_drawn() -> None:
    layer, x = layer_and_input(1, False)
    layer.add_content(2)
    with pytest.raises(ConversionError, match="over images alone"):
        plane_of(layer, x)


@pytest.mark.parametrize(("axes", "transposed"), [(1, True), (3, False)])
def test_every_picture_is_drawn_of_every_kind(axes: int, transposed: bool, tmp_path: Path) -> None:
    converted = convert_model(nn.Sequential(CONVOLUTIONS[axes, transposed](3, 4, 3, padding=1))).model
    save_converted(attention_from_conv(CONVOLUTIONS[axes, transposed](3, 4, 3, padding=1)), tmp_path / "folder")
    assert len(scenes(converted, torch.zeros(1, 3, 16, 16))) == 1
    for picture, layer in product(PICTURES, (None, "")):
        view = View(picture=picture, layer=layer)
        assert show(tmp_path / "folder", tmp_path / "out.svg", view, force=True) == [""]
    assert (tmp_path / "out.svg").stat().st_size > 1000
