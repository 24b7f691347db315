"""Pictures are scaled, cut and normalised, (p - mean) / std with p from 0 to 1, as torchvision does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import OptionError
from conv2attn.convert.files.preprocessing import Normalization, Owner, Preprocessing


def test_a_normalization_is_that_of_torchvision() -> None:
    mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
    pictures = torch.randint(0, 257, (2, 3, 4, 5)) / 128 - 1  # every step below is exact in binary
    made = Normalization(mean, std)(pictures)
    for channel in range(3):
        assert torch.equal(made[:, channel], ((pictures[:, channel] + 1) / 2 - mean[channel]) / std[channel])


@pytest.mark.parametrize(
    ("mean", "std"),
    [((0.0,), (0.0,)), ((math.nan,), (1.0,)), ((0.0,) * 3, (1.0,) * 2)],
)
def test_numbers_that_normalize_nothing_are_refused(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match="mean"):
        Normalization(mean, std)


def test_bytes_are_divided_and_normalised_in_single_precision_as_torchvision_and_transformers_do() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
    mean, std = 0.485, 0.229
    made = Normalization((mean,), (std,))(pixels)
    unit = pixels.float().div(255)  # ToTensor
    assert torch.equal(made, unit.clone().sub_(torch.tensor(mean)).div_(torch.tensor(std)))
    rescaled = (pixels.numpy().astype(np.float64) * (1 / 255)).astype(np.float32)  # transformers' rescale
    assert torch.equal(unit, torch.from_numpy(rescaled))


SIZES = st.tuples(st.integers(1, 900), st.integers(1, 900))
ONE = Normalization((0.0,), (1.0,))


@given(SIZES, st.integers(1, 400))
def test_the_shorter_side_is_scaled_and_the_longer_one_rounded_down(size: tuple[int, int], shorter: int) -> None:
    rows, columns = Preprocessing(ONE, scale=shorter).scaled(Size(*size))
    assert min(rows, columns) == shorter
    assert max(rows, columns) == shorter * max(size) // min(size)
    assert (rows <= columns) == (size[0] <= size[1]) or rows == columns


@given(SIZES, SIZES)
def test_the_middle_is_cut_out_as_torchvision_does(size: tuple[int, int], crop: tuple[int, int]) -> None:
    corner = Preprocessing(ONE, crop=Size(*crop)).corner(Size(*size))
    for length, wanted, before in zip(size, crop, corner, strict=True):
        assert abs(2 * before - (length - wanted)) <= 1  # as many pixels before as after, but for an odd one
        if length >= wanted:
            assert before == int(round((length - wanted) / 2.0))  # noqa: RUF046 - torchvision's own words


OWNED = Preprocessing(ONE, scale=256, crop=Size(224, 200), interpolation="box", owner=Owner("timm", {"a": 1}, ("b",)))


@pytest.mark.parametrize(
    "made",
    [
        Preprocessing(ONE),
        OWNED,
        Preprocessing(Normalization((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), channels=4, scale=Size(3, 4)),
    ],
)
def test_a_preprocessing_is_read_again(made: Preprocessing) -> None:
    assert Preprocessing.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_normalization_of_the_caller_s_takes_the_place_of_the_owner_s_code() -> None:
    own = Normalization((0.5,), (0.25,))
    assert OWNED.with_normalization(own) == replace(OWNED, normalization=own, owner=None)


WRONG: list[dict[str, Any]] = [
    {"mean": None},
    {"scale": [3, 0]},
    {"channels": 2},
    {"more": 1},
    {"owner": {"library": "timm"}},
    {"owner": {"library": "keras", "description": {}, "unfollowed": []}},
    {"owner": {"library": "timm", "description": 3, "unfollowed": []}},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_describes_no_preprocessing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Preprocessing.from_json(Preprocessing(ONE).to_json() | wrong)
