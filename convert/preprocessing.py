"""Preprocessing of pictures: the steps that most networks were trained on, and their owner's own description.

    scale the picture, cut its middle out, then (p - mean) / std of each channel, with p from 0 to 1

Where the owner's library is installed, its own code prepares pictures (``files/named/preprocessors.py``). Pixels are
bytes until they are normalised, so that the numbers are the owner's, bit for bit: torchvision's ``ToTensor``
and ``Normalize`` divide bytes by 255, subtract and divide in float32, as ``Normalization`` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .arguments import Size
from .errors import OptionError

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Library = Literal["timm", "torchvision", "transformers"]
_CHANNELS = (1, 3, 4)
_OF_VERSION_1 = ("longest", "reverse", "owner")


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
class Owner:
    """The owner's description of a preprocessing.

    Attributes:
        library: The library that prepares pictures by it.
        description: The description, as plain data.
        unfollowed: Names of what it asks for beyond mean, deviation, size, crop and filter.

    Raises:
        OptionError: It is of another kind.
    """

    library: Library
    description: Mapping[str, Any]
    unfollowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.library not in get_args(Library) or not isinstance(self.description, Mapping):
            raise OptionError(f"an owner is one of {', '.join(get_args(Library))} and a mapping; got {self}")


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of a network's pictures.

    Attributes:
        normalization: Mean and standard deviation.
        channels: Channels that the network takes: 1, 3 or 4.
        scale: Length in pixels that the shorter side is scaled to, or rows and columns; None keeps the picture's.
        crop: Rows and columns that are cut out of the middle; zeros where the picture is smaller. None keeps all.
        interpolation: How it is scaled, by Pillow's name.
        owner: The owner's own description, or None.

    Raises:
        OptionError: A value is of another kind.
    """

    normalization: Normalization
    channels: int = 3
    scale: int | Size | None = None
    crop: Size | None = None
    interpolation: Interpolation = "bicubic"
    owner: Owner | None = None

    def __post_init__(self) -> None:
        lengths = (*(self.scale if isinstance(self.scale, tuple) else (self.scale,)), *(self.crop or ()))
        known = self.interpolation in get_args(Interpolation)
        if not known or self.channels not in _CHANNELS or not all(n is None or _is_length(n) for n in lengths):
            raise OptionError(f"a preprocessing has sizes from 1 on, 1, 3 or 4 channels and known names; got {self}")

    def with_normalization(self, normalization: Normalization) -> Preprocessing:
        """The same scaling and cropping with a caller's mean and deviation, which no owner's code follows."""
        return replace(self, normalization=normalization, owner=None)

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
        longer = self.scale * most // least
        return Size(*(self.scale if length == least else longer for length in size))

    def corner(self, size: Size) -> tuple[int, int]:
        """Row and column of a picture of a size at which the part that is cut out begins; negative in its padding."""
        if self.crop is None:
            return 0, 0
        row, column = (round((length - wanted) / 2) for length, wanted in zip(size, self.crop, strict=True))
        return row, column

    def to_json(self) -> dict[str, Any]:
        """The preprocessing as plain data."""
        own = {**vars(self.normalization), **vars(self), "owner": self.owner and vars(self.owner)}
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
            if isinstance(values.get("owner"), str):  # of version 1, which followed owners by itself
                values = {key: value for key, value in values.items() if key not in _OF_VERSION_1}
            if values.get("owner") is not None:
                own = values["owner"]
                values["owner"] = Owner(own["library"], own["description"], tuple(own["unfollowed"]))
            normalization = Normalization(*(tuple(map(float, values.pop(name))) for name in ("mean", "std")))
            sizes = {key: Size(*values[key]) for key in ("scale", "crop") if isinstance(values.get(key), list)}
            return cls(normalization, **(values | sizes))
        except (KeyError, TypeError, ValueError) as error:
            raise OptionError(f"a preprocessing cannot be read from {str(data)[:200]}") from error


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
