"""Transposed layers are drawn as what they are; layers over sequences and volumes are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.commands.show import View, show
from conv2attn.convert import ConversionError, SelfAttention, attention_from_conv, convert_model, save_converted
from conv2attn.convert.spec import CONVOLUTIONS, Convolution
from conv2attn.show.page.draw import PICTURES
from conv2attn.show.pictures.scene import plane_of, scenes
from tests.command import Run


def whole(conv: Convolution) -> Convolution:
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape))
    return conv


def transposed() -> tuple[SelfAttention, Tensor]:
    conv = whole(nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, groups=2))
    return attention_from_conv(conv), torch.randint(-3, 4, (1, 2, 5, 6)).float()


def test_what_is_drawn_computes_what_the_layer_computes() -> None:
    layer, x = transposed()
    plane = plane_of(layer, x)
    for engine in ("literal", "separable", "factored"):
        plane.layer.engine = engine
        assert torch.equal(plane.layer(plane.x), layer(x)), engine
    assert plane.note is not None


def test_an_image_is_drawn_as_it_is() -> None:
    layer, x = attention_from_conv(nn.Conv2d(2, 3, 3)), torch.zeros(1, 2, 5, 5)
    plane = plane_of(layer, x)
    assert (plane.layer, plane.x, plane.note) == (layer, x, None)


def test_learned_scores_of_a_transposed_layer_are_not_drawn() -> None:
    layer, x = transposed()
    layer.add_content(2)
    with pytest.raises(ConversionError, match="not drawn of transposed layers"):
        plane_of(layer, x)


def test_every_picture_is_drawn_of_a_transposed_layer(tmp_path: Path) -> None:
    conv = nn.ConvTranspose2d(3, 4, 3, padding=1)
    assert len(scenes(convert_model(nn.Sequential(conv)).model, torch.zeros(1, 3, 16, 16))) == 1
    save_converted(attention_from_conv(conv), tmp_path / "folder")
    for number, picture in enumerate(PICTURES):
        view = View(picture=picture, layer=None if number % 2 else "")
        assert show(tmp_path / "folder", tmp_path / "out.svg", view, force=True) == [""]
    assert (tmp_path / "out.svg").stat().st_size > 1000


@pytest.mark.parametrize(("axes", "what"), [(1, "sequences"), (3, "volumes")])
def test_a_layer_over_sequences_or_volumes_is_refused_in_one_sentence(
    axes: int, what: str, run: Run, tmp_path: Path
) -> None:
    save_converted(attention_from_conv(CONVOLUTIONS[axes, False](3, 4, 3, padding=1)), tmp_path / "folder")
    said = f"it is over {what}, and layers over images are drawn"
    for options in (("out.svg", "--layer", ""), ("out.html",)):
        code, _, err = run("show", "folder", "--out", *options)
        assert (code, err.count("\n")) == (3, 1)
        assert said in err


def test_a_picture_shows_the_layers_over_images_alone() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(2), nn.Conv1d(2, 1, 3))
    assert [scene.name for scene in scenes(convert_model(net).model, torch.zeros(1, 1, 8, 8))] == ["0"]
