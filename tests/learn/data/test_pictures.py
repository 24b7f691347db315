"""A picture is read as a network takes it: scaled and normalised, as Pillow and the preprocessing say."""

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


def test_a_picture_is_scaled_and_normalised(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    pixels = picture_of(path, rows=9, columns=14)
    normalization = Normalization((0.25, 0.5, 0.75), (0.5, 0.25, 2.0))
    made = picture_reader(Preprocessing(normalization, size=Size(5, 7)))(path)
    scaled = np.array(Image.fromarray(pixels).resize((7, 5), Image.Resampling.LANCZOS))
    assert torch.equal(made, normalization(torch.from_numpy(scaled).permute(2, 0, 1)))
    assert made.is_contiguous()
    unscaled = picture_reader(Preprocessing(normalization))(path)
    assert torch.equal(unscaled, normalization(torch.from_numpy(pixels).permute(2, 0, 1)))
