"""Normalization is (p - mean) / std of pictures from 0 to 1, channel by channel."""

from __future__ import annotations

import math

import pytest
import torch

from conv2attn.convert.errors import OptionError
from conv2attn.convert.preprocessing import Normalization


def test_a_normalization_is_that_of_torchvision() -> None:
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
    pictures = torch.randint(0, 257, (2, 3, 4, 5)) / 128 - 1  # every step below is exact in binary
    made = Normalization(mean, std)(pictures)
    for channel in range(3):
        assert torch.equal(made[:, channel], ((pictures[:, channel] + 1) / 2 - mean[channel]) / std[channel])


def test_a_half_and_a_half_leave_pictures_as_they_are_read() -> None:
    pictures = torch.randint(0, 257, (3, 4, 5)) / 128 - 1
    assert torch.equal(Normalization((0.5,), (0.5,))(pictures), pictures)


@pytest.mark.parametrize(
    ("mean", "std"),
    [((), (1.0,)), ((0.0,), (0.0,)), ((0.0,), (-1.0,)), ((math.nan,), (1.0,)), ((0.0,) * 3, (1.0,) * 2)],
)
def test_numbers_that_normalize_nothing_are_refused(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match="mean"):
        Normalization(mean, std)


def test_a_normalization_for_other_channels_is_refused() -> None:
    with pytest.raises(OptionError, match="3 numbers; the network takes 1 channels"):
        Normalization((0.0, 0.0, 0.0), (1.0,))(torch.zeros(2, 1, 4, 5))
