"""Preprocessing of pictures: what a network was trained on, as its owner's library does it.

    scale the picture, cut its middle out, then (p - mean) / std of each channel, with p from 0 to 1

Pixels are bytes until they are normalised, so that the numbers are the owner's, bit for bit: torchvision's ``ToTensor``
and ``Normalize`` divide bytes by 255, subtract and divide in float32, as ``Normalization`` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .errors import OptionError
from .size import Size

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Owner = Literal["torchvision", "transformers"]
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of each channel, for pictures scaled to the range 0 to 1.

    Attributes:
        mean: One number for all channels, or one a channel.
        std: Likewise; positive.

    Raises:
        OptionError: The numbers are not finite, a deviation is not positive, or their counts differ.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (self.mean and self.std and all(map(math.isfinite, (*self.mean, *self.std))) and min(self.std) > 0):
            raise OptionError(f"mean must be finite and std positive; got mean {self.mean}, std {self.std}")
        if len({len(self.mean), len(self.std)} - {1}) > 1:
            raise OptionError(f"mean and std must have as many numbers; got {len(self.mean)} and {len(self.std)}")

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures as a network takes them: (p - mean) / std, with p from 0 to 1.

        Args:
            pictures: [..., channels, rows, columns], bytes (uint8), or values -1 to 1, as pictures are read.

        Raises:
            OptionError: The pictures have another number of channels.
        """
        channels = pictures.shape[-3]
        if not {len(self.mean), len(self.std)} <= {1, channels}:
            count = max(len(self.mean), len(self.std))
            raise OptionError(f"mean and std have {count} numbers; the network takes {channels} channels")
        unit = pictures.float() / 255 if pictures.dtype == torch.uint8 else (pictures + 1) / 2
        mean, std = (torch.tensor(numbers).view(-1, 1, 1).to(unit) for numbers in (self.mean, self.std))
        return (unit - mean) / std


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of a network's pictures.

    Attributes:
        normalization: Mean and standard deviation.
        channels: Channels that the network takes: 1, 3 or 4.
        scale: Length in pixels that the shorter side is scaled to, or rows and columns; None keeps the picture's.
        longest: Where ``scale`` is of the shorter side, the most that the longer side may become.
        crop: Rows and columns that are cut out of the middle; zeros where the picture is smaller. None keeps all.
        interpolation: How it is scaled, by Pillow's name.
        reverse: Whether the channels come in the order blue, green, red.
        owner: The library whose rounding of odd margins is followed.

    Raises:
        OptionError: A value is of another kind.
    """

    normalization: Normalization
    channels: int = 3
    scale: int | Size | None = None
    longest: int | None = None
    crop: Size | None = None
    interpolation: Interpolation = "bicubic"
    reverse: bool = False
    owner: Owner = "torchvision"

    def __post_init__(self) -> None:
        lengths = (*(self.scale if isinstance(self.scale, tuple) else (self.scale,)), self.longest, *(self.crop or ()))
        known = self.interpolation in get_args(Interpolation) and self.owner in get_args(Owner)
        if not known or self.channels not in _CHANNELS or not all(n is None or _is_length(n) for n in lengths):
            raise OptionError(f"a preprocessing has sizes from 1 on, 1, 3 or 4 channels and known names; got {self}")

    @property
    def size(self) -> Size | None:
        """Rows and columns that the network sees; None if they follow the picture's."""
        return self.crop or (self.scale if isinstance(self.scale, tuple) else None)

    def scaled(self, size: Size) -> Size:
        """Size to which a picture of a size is scaled, before its middle is cut out."""
        if self.scale is None:
            return size
        if isinstance(self.scale, tuple):
            return self.scale
        least, most = min(size), max(size)
        shorter: float = self.scale
        if self.longest is not None and most / least * self.scale > self.longest:
            shorter = self.longest * least / most
        if round(shorter) == least:
            return size
        longer = int(shorter * most / least)
        return Size(*(round(shorter) if length == least else longer for length in size))

    def corner(self, size: Size) -> tuple[int, int]:
        """Row and column of a picture of a size at which the part that is cut out begins; negative in its padding."""
        if self.crop is None:
            return 0, 0
        row, column = (self._margin(length - wanted) for length, wanted in zip(size, self.crop, strict=True))
        return row, column

    def _margin(self, odd: int) -> int:
        """Pixels before the part that is cut out, of all that are left over, or lacking."""
        if self.owner == "transformers":
            return odd // 2  # the larger half of what is lacking goes before
        return round(odd / 2) if odd >= 0 else -(-odd // 2)  # torchvision: half to even; the smaller half before

    def to_json(self) -> dict[str, Any]:
        """The preprocessing as plain data."""
        own = {**vars(self.normalization), **vars(self)}
        del own["normalization"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preprocessing:
        """Reads what ``to_json`` wrote.

        Raises:
            OptionError: The data do not describe a preprocessing.
        """
        try:
            values = dict(data)
            normalization = Normalization(*(tuple(map(float, values.pop(name))) for name in ("mean", "std")))
            sizes = {key: Size(*values[key]) for key in ("scale", "crop") if isinstance(values.get(key), list)}
            return cls(normalization, **(values | sizes))
        except (KeyError, TypeError, ValueError) as error:
            raise OptionError(f"a preprocessing cannot be read from {str(data)[:200]}") from error


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
