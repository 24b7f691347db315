"""What the fuzzer of images calls: one file in a folder of images is read, or refused.

The first byte of an input says which ending the file's name has.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.data.pictures import SUFFIXES
from conv2attn.proofs.evidence.image_folder import read_images

SECONDS = 5.0
ENDINGS = (".npy", ".pt", *SUFFIXES)
_FOLDER = Path(tempfile.gettempdir(), f"conv2attn-fuzz-images-{os.getpid()}")


def seeds() -> Iterator[bytes]:
    """What numpy, torch and Pillow write, a few pixels each."""
    numbers = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    array, tensor = io.BytesIO(), io.BytesIO()
    np.save(array, numbers)
    torch.save(torch.from_numpy(numbers), tensor)
    yield bytes([ENDINGS.index(".npy")]) + array.getvalue()
    yield bytes([ENDINGS.index(".pt")]) + tensor.getvalue()
    for mode in ("RGB", "L", "RGBA", "P", "1"):
        for ending, kind in ((".png", "PNG"), (".bmp", "BMP"), (".jpg", "JPEG"), (".webp", "WEBP"), (".png", "GIF")):
            if kind == "JPEG" and mode in ("RGBA", "P"):
                continue
            picture = io.BytesIO()
            Image.new(mode, (5, 4)).save(picture, kind)
            yield bytes([ENDINGS.index(ending)]) + picture.getvalue()
    picture = io.BytesIO()
    Image.new("RGB", (5, 4)).save(picture, "PPM")
    yield bytes([ENDINGS.index(".png")]) + picture.getvalue()


def one_image(data: bytes) -> None:
    """Reads an input as the only image of a folder.

    Raises:
        AssertionError: It took more than ``SECONDS`` of processor time.
        Exception: It was neither read nor refused.
    """
    if not data:
        return
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"image{ENDINGS[data[0] % len(ENDINGS)]}"
    path.write_bytes(data[1:])
    start = time.process_time()  # of this process alone: the machine may be busy
    try:
        read_images(_FOLDER, channels=3).sum()
    except ConversionError:
        pass
    finally:
        path.unlink()
    assert time.process_time() - start < SECONDS
