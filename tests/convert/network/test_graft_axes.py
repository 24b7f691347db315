"""Spare heads look along the axes of images, never along channels; lists of images are inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, convert_model, graft
from conv2attn.convert.errors import OptionError
from conv2attn.convert.inputs import as_inputs, call_with


class Attention(nn.Module):
    """Channel attention: convolves along the channels of the pooled image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.conv(x.flatten(2).mean(2).unsqueeze(1)).sigmoid().squeeze(1)
        y: Tensor = x * scores.reshape(*scores.shape, *[1] * (x.ndim - 2))
        return y


class Framed(nn.Sequential):
    """Takes films, frame by frame."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = nn.Sequential.forward(self, x.flatten(0, 1))  # type: ignore[no-untyped-call]
        return y


class Spectral(nn.Sequential):
    """Takes spectrograms without channels."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = nn.Sequential.forward(self, x.unsqueeze(1))  # type: ignore[no-untyped-call]
        return y


def several(kind: Any, inputs: int) -> list[nn.Module]:
    """One convolution over the image, and more along channels, which come last and see enough of them."""
    return [kind(inputs, 128, 3, padding=1), Attention(), nn.ReLU(), kind(128, 128, 1), Attention(), Attention()]


NETWORKS: dict[str, tuple[Any, tuple[int, ...], Any]] = {
    "images": (lambda: nn.Sequential(*several(nn.Conv2d, 3)), (2, 3, 12, 13), "0"),
    "images, channels before": (lambda: nn.Sequential(Attention(), *several(nn.Conv2d, 3)), (2, 3, 12, 13), "1"),
    "volumes": (lambda: nn.Sequential(*several(nn.Conv3d, 3)), (1, 3, 5, 6, 7), "0"),
    "frames": (lambda: Framed(*several(nn.Conv2d, 3)), (1, 2, 3, 12, 13), "0"),
    "spectrograms": (lambda: Spectral(*several(nn.Conv2d, 1)), (2, 12, 13), "0"),
    "sequences": (lambda: nn.Sequential(nn.Conv1d(3, 8, 3), nn.Conv1d(8, 8, 3)), (2, 3, 150), "1"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_auto_takes_a_convolution_over_the_images_axes(name: str) -> None:
    make, size, expected = NETWORKS[name]
    network, x = make().eval(), torch.randn(size)
    model, report = graft(network, example=x)
    assert [layer.name for layer in report.layers] == [expected]
    assert torch.equal(model(x), network(x))


def test_without_an_example_auto_takes_the_axes_of_most_convolutions() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), Attention())
    assert [layer.name for layer in graft(network).report.layers] == ["0"]


@pytest.mark.parametrize("with_example", [False, True])
def test_where_only_channels_are_left_nothing_is_grafted_unless_it_is_named(with_example: bool) -> None:
    network, x = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 128, 1), Attention()), torch.randn(2, 3, 12, 13)
    with pytest.raises(ConversionError, match="2 axes"):
        graft(network, example=x if with_example else None)
    assert graft(network, where="2.conv", example=x).report.layers[0].name == "2.conv"


class Detector(nn.Module):
    """Takes images of several sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, images: list[Tensor], targets: Any = None) -> list[dict[str, Tensor]]:
        if not isinstance(images, list):
            raise TypeError("images must be a list")
        return [{"scores": self.conv(each).mean((1, 2)), "boxes": self.conv(each)} for each in images]


class Untyped(Detector):
    """The same, which does not say so."""

    def forward(self, images, targets=None):  # type: ignore[no-untyped-def]
        return super().forward(images, targets)


IMAGES = [torch.randn(3, 12, 13), torch.randn(3, 14, 11)]


@pytest.mark.parametrize("kind", [Detector, Untyped])
@pytest.mark.parametrize("example", [IMAGES, [IMAGES], {"images": IMAGES}])
def test_a_detector_takes_its_list_of_images_as_an_example(kind: Any, example: Any) -> None:
    network = kind().eval()
    assert convert_model(network, example=example).report.idle == ()
    _, report = graft(network, example=example)
    assert report.layers[0].size == (12, 13)
    assert len(call_with(network, example)) == 2


@pytest.mark.parametrize("wrong", [[], [[]], [[1]], [IMAGES, "text"], [(IMAGES[0],)], {"images": [1]}])
def test_what_is_no_list_of_images_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError):
        as_inputs(wrong)
