"""A picture is read as a network takes it: scaled, cut and normalised, as Pillow and the preprocessing say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from conv2attn.convert.arguments import Size
from conv2attn.convert.files.preprocessing import Normalization, Preprocessing
from conv2attn.learn.data.pictures import picture_reader


def picture_of(path: Path, *, rows: int, columns: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def test_a_picture_is_scaled_cut_and_normalised(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    pixels = picture_of(path, rows=9, columns=14)
    normalization = Normalization((0.25, 0.5, 0.75), (0.5, 0.25, 2.0))
    made = picture_reader(Preprocessing(normalization, scale=6, crop=Size(5, 7), interpolation="box"))(path)
    scaled = np.array(Image.fromarray(pixels).resize((9, 6), Image.Resampling.BOX))  # 6 x int(6 * 14 / 9)
    cut = torch.from_numpy(scaled[0:5, 1:8]).permute(2, 0, 1)  # margins 1 and 2: half of 1 to even is 0
    assert torch.equal(made, normalization(cut))
    assert made.is_contiguous()


def test_a_picture_that_is_too_small_is_padded_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    pixels = picture_of(path, rows=3, columns=8)
    one = Normalization((0.0,), (1.0,))
    made = picture_reader(Preprocessing(one, crop=Size(6, 4)))(path) * 255
    wanted = torch.zeros(3, 6, 4)
    wanted[:, 2:5] = torch.from_numpy(pixels[:, 2:6].copy()).permute(2, 0, 1).float()
    assert torch.equal(made.round(), wanted)
