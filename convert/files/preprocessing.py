"""How a picture becomes a network's input: by the code of the library that the network comes from.

A description (timm's ``pretrained_cfg``, ``preprocessor_config.json``, torchvision's weights) is kept whole, and the
library that wrote it prepares pictures: ``timm.data.create_transform``, transformers' image processor, the transforms
of torchvision's weights. Only the mean and deviation of each channel, the number of channels and the size are read
here. Where the library is not installed, pictures are scaled to that size and become (p - mean) / std with p from 0 to
1, and ``caveats`` says so.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..arguments import Size
from ..errors import ArchitectureError, CheckpointError, ConversionError, OptionError, refusing
from ..plain import read_object
from .names import import_module, library, offline

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


Library = Literal["timm", "torchvision", "transformers"]
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
        import torch

        channels = pictures.shape[-3]
        if not {len(self.mean), len(self.std)} <= {1, channels}:
            count = max(len(self.mean), len(self.std))
            raise OptionError(f"mean and std have {count} numbers; the network takes {channels} channels")
        unit = pictures.float() / 255 if pictures.dtype == torch.uint8 else (pictures + 1) / 2
        mean, std = (
            torch.tensor(numbers, dtype=torch.float32, device="cpu").view(-1, 1, 1).to(unit)
            for numbers in (self.mean, self.std)
        )
        return (unit - mean) / std


@dataclass(frozen=True)
class Owner:
    """The owner's description of a preprocessing.

    Attributes:
        library: The library that prepares pictures by it.
        description: The description, as plain data.

    Raises:
        OptionError: It is of another kind.
    """

    library: Library
    description: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.library not in get_args(Library) or not isinstance(self.description, Mapping):
            raise OptionError(f"an owner is one of {', '.join(get_args(Library))} and a mapping; got {self}")


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of a network's pictures.

    Attributes:
        normalization: Mean and standard deviation.
        channels: Channels that the network takes: 1, 3 or 4.
        size: Rows and columns that the network sees; None if they follow the picture's.
        owner: The owner's own description, or None.

    Raises:
        OptionError: A value is of another kind.
    """

    normalization: Normalization
    channels: int = 3
    size: Size | None = None
    owner: Owner | None = None

    def __post_init__(self) -> None:
        lengths = [type(length) is int and length >= 1 for length in self.size or ()]
        if self.channels not in _CHANNELS or not all(lengths):
            raise OptionError(f"a preprocessing has a size from 1 on and 1, 3 or 4 channels; got {self}")

    def with_normalization(self, normalization: Normalization) -> Preprocessing:
        """The same size with a caller's mean and deviation, which no owner's code follows."""
        return replace(self, normalization=normalization, owner=None)

    def to_json(self) -> dict[str, Any]:
        """The preprocessing as plain data."""
        return {
            "mean": list(self.normalization.mean),
            "std": list(self.normalization.std),
            "channels": self.channels,
            "size": self.size and list(self.size),
            "owner": self.owner and vars(self.owner),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preprocessing:
        """Reads what ``to_json`` wrote.

        Raises:
            OptionError: The data do not describe a preprocessing.
        """
        try:
            normalization = Normalization(*(tuple(map(float, data[name])) for name in ("mean", "std")))
            size = None if data["size"] is None else Size(*data["size"])
            owner = None if data["owner"] is None else Owner(**data["owner"])
            return cls(normalization, data["channels"], size, owner)
        except (KeyError, TypeError, ValueError) as error:
            raise OptionError(f"a preprocessing cannot be read from {str(data)[:200]}") from error


Transform = Callable[["Image"], "Tensor"]
"""Prepares a picture: [channels, rows, columns], float32, as the network takes it."""
_TORCHVISION = "torchvision.models"
_OF_PICTURES = ("ImageClassification", "SemanticSegmentation", "ObjectDetection")  # torchvision's transforms
_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_OF_TIMM = ("input_size", "fixed_input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std")
_MOMENTS = (("image_mean", 0.0), ("image_std", 1.0))  # each with its neutral number
_UNKNOWN = "Unrecognized image processor"  # of transformers, which then lists its hundreds of models
_KINDS = ("image_processor_type", "feature_extractor_type", "processor_class")


def from_folder(folder: Path) -> Preprocessing | None:
    """The preprocessing of a Hugging Face folder, of transformers or of timm; None if it does not describe one."""
    if (folder / _PREPROCESSOR).is_file():
        return from_transformers(read_object(folder / _PREPROCESSOR))
    try:
        return from_timm(read_object(folder / _CONFIG).get("pretrained_cfg"))
    except CheckpointError:
        return None


def from_timm(config: object) -> Preprocessing | None:
    """The preprocessing of a ``pretrained_cfg``; None if it lacks a mean or a deviation, or its input is no picture."""
    if not isinstance(config, Mapping):
        return None
    shape, mean, std = (config.get(name) for name in ("input_size", "mean", "std"))
    if not (mean and std and shape and len(shape) == 3 and shape[0] in (1, 3, 4)):
        return None
    own = {key: config[key] for key in _OF_TIMM if config.get(key) is not None}
    description = {key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}
    normalization = Normalization(_numbers(mean, 0.0), _numbers(std, 1.0))
    return Preprocessing(normalization, shape[0], Size(*shape[1:]), Owner("timm", description))


def from_torchvision(spec: str) -> Preprocessing | None:
    """The preprocessing of the newest weights that torchvision lists for a network that was built; none are fetched.

    None for other specifications, and for networks of videos or of several pictures.
    """
    location, _, name = spec.rpartition(":")
    if not f"{location}.".startswith(f"{_TORCHVISION}."):
        return None
    models: Any = import_module(_TORCHVISION)
    weights = getattr(models.get_model_weights(name), "DEFAULT", None) if name in models.list_models() else None
    own: Any = None if weights is None else weights.transforms()
    if type(own).__name__ not in _OF_PICTURES:
        return None
    mean, std, crop = (getattr(own, key, None) for key in ("mean", "std", "crop_size"))
    return Preprocessing(
        Normalization(_numbers(mean, 0.0), _numbers(std, 1.0)),  # detectors take values from 0 to 1
        size=crop and Size(crop[0], crop[-1]),
        owner=Owner("torchvision", {"weights": str(weights)}),
    )


def from_transformers(config: Mapping[str, Any]) -> Preprocessing | None:
    """The preprocessing of an image processor, of a ``preprocessor_config.json``.

    None if it does not normalise or rescale pictures, as a tokenizer's or a sound's.
    """
    if not any(key in config for key in ("image_mean", "do_rescale", "do_resize")):
        return None
    is_normalised = config.get("do_normalize")
    mean, std = (_numbers(config.get(key) if is_normalised else None, n) for key, n in _MOMENTS)
    size = None
    if config.get("do_center_crop"):
        size = _rectangle(config.get("crop_size"))
    elif config.get("do_resize", True):
        size = _rectangle(config.get("size"))
    return Preprocessing(Normalization(mean, std), size=size, owner=Owner("transformers", dict(config)))


def owners_transform(known: Preprocessing) -> Transform | None:
    """The owner's own code for pictures; None where the preprocessing has no owner.

    Raises:
        ArchitectureError: The owner's library is not installed, or cannot do it.
    """
    if known.owner is None:
        return None
    made = {"timm": _of_timm, "torchvision": _of_torchvision, "transformers": _of_transformers}
    described = f"the {known.owner.library} that is installed cannot prepare pictures as described"
    with refusing(described, ArchitectureError):
        return made[known.owner.library](known.owner.description)


def caveats(known: Preprocessing | None) -> list[str]:
    """A sentence where the owner's own code cannot prepare pictures: what is done instead, and why."""
    if known is None or known.owner is None:
        return []
    try:
        owners_transform(known)
    except ConversionError as error:
        scaled = "" if known.size is None else f"scaled to {known.size} and "
        rest = f"the rest of the description is not followed, which {known.owner.library} would do"
        return [f"Pictures are only {scaled}normalised; {rest}: {error}"]
    return []


def _of_timm(description: Mapping[str, Any]) -> Transform:
    library("timm")
    data: Any = import_module("timm.data")
    config = {key: tuple(value) if isinstance(value, list) else value for key, value in description.items()}
    made: Transform = data.create_transform(**data.resolve_data_config({}, pretrained_cfg=config), is_training=False)
    return made


def _of_torchvision(description: Mapping[str, Any]) -> Transform:
    library("torchvision")
    models: Any = import_module(_TORCHVISION)
    made: Transform = models.get_weight(description["weights"]).transforms()
    return made


def _of_transformers(description: Mapping[str, Any]) -> Transform:
    transformers: Any = library("transformers", extra="hf")
    own = {key: value for key, value in description.items() if key != "auto_map"}  # code of the folder's own
    with offline(), tempfile.TemporaryDirectory() as folder:
        Path(folder, _PREPROCESSOR).write_text(json.dumps(own), encoding="utf-8")
        try:
            made: Any = transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        except ValueError as error:
            if _UNKNOWN not in str(error):
                raise
            kind = next((str(own[key]) for key in _KINDS if own.get(key)), None)
            named = "the description names no image processor" if kind is None else f"it has no {kind:.80}"
            raise ArchitectureError(f"the transformers that is installed cannot prepare pictures: {named}") from error

    def prepare(picture: Image) -> Tensor:
        prepared: Tensor = made(images=picture, return_tensors="pt")["pixel_values"]
        return prepared.reshape(-1, *prepared.shape[-2:]).float()

    return prepare


def _numbers(value: Any, otherwise: float) -> tuple[float, ...]:
    if value is None:
        return (otherwise,)
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),)


def _rectangle(size: Any) -> Size | None:
    if isinstance(size, Mapping):  # a size with other keys follows the picture
        return Size(int(size["height"]), int(size["width"])) if {"height", "width"} <= size.keys() else None
    return None if size is None else Size(int(size), int(size))
