"""Images as bad cameras and bad files give them, after Hendrycks and Dietterich (arXiv 1903.12261).

Six of their corruptions, those that need nothing but arithmetic and Pillow; the strengths are ours, one for each. A
corruption sees images scaled to 0 to 1, as their grey values are, and its result is cut off there. The same images give
the same corrupted images, whatever was drawn before.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .images import Split

_SEED = 20
NOISE = 0.15  # standard deviation
BLUR = 1 / 20  # standard deviation of the Gaussian, of the image's shorter side
CONTRAST = 0.5  # factor of the distance from an image's mean
BRIGHTNESS = 0.2  # added
PIXELATE = 0.6  # share of the rows and columns that remain
QUALITY = 25  # JPEG quality


def corruptions() -> dict[str, Callable[[Tensor], Tensor]]:
    """Corruptions of images [count, channels, rows, columns] from 0 to 1, by name; JPEG only if Pillow is installed."""
    found: dict[str, Callable[[Tensor], Tensor]] = {
        "noise": _noise,
        "blur": _blur,
        "contrast": _contrast,
        "brightness": _brightness,
        "pixelate": _pixelate,
    }
    try:
        import PIL.Image  # noqa: F401
    except ModuleNotFoundError:
        return found
    return found | {"jpeg": _jpeg}


def corrupted(split: Split) -> dict[str, Split]:
    """The same images under each corruption, by its name.

    Values are taken to be from -1 to 1; those beyond, which drawn images have, are cut off.
    """
    scaled = (split.pictures() + 1).div(2).clamp(0, 1)
    made = corruptions()
    if scaled.shape[1] not in (1, 3):
        made.pop("jpeg", None)  # which knows grey values and colours only
    return {name: split._replace(images=change(scaled).clamp(0, 1).mul(2).sub(1)) for name, change in made.items()}


def _noise(images: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    return images + NOISE * torch.randn(images.shape, generator=generator)


def _blur(images: Tensor) -> Tensor:
    width = BLUR * min(images.shape[2:])
    reach = max(1, int(4 * width))
    along = torch.exp(-torch.arange(-reach, reach + 1).float().square() / (2 * width**2))
    along = (along / along.sum()).view(1, 1, 1, -1)
    single = images.flatten(0, 1).unsqueeze(1)
    wide = F.conv2d(F.pad(single, (reach, reach, 0, 0), mode="replicate"), along)
    both = F.conv2d(F.pad(wide, (0, 0, reach, reach), mode="replicate"), along.transpose(2, 3))
    return both.view(images.shape)


def _contrast(images: Tensor) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return mean + CONTRAST * (images - mean)


def _brightness(images: Tensor) -> Tensor:
    return images + BRIGHTNESS


def _pixelate(images: Tensor) -> Tensor:
    size = images.shape[2:]
    small = [max(1, round(PIXELATE * length)) for length in size]
    return F.interpolate(F.interpolate(images, small, mode="area"), size, mode="nearest")


def _jpeg(images: Tensor) -> Tensor:
    from PIL import Image

    grey = images.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1)
    made = torch.empty(images.shape)
    for index, pixels in enumerate(grey):
        file = io.BytesIO()
        Image.fromarray(pixels.squeeze(-1).numpy()).save(file, "JPEG", quality=QUALITY)
        read = torch.from_numpy(np.array(Image.open(file))).view(pixels.shape)
        made[index] = read.permute(2, 0, 1).float().div(255)
    return made
