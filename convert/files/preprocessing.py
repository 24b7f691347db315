"""How a picture becomes a network's input: the network owner's own code and description, or the usual steps.

The usual steps: scale the picture, cut out its middle, then (p - mean) / std of each channel, with p from 0 to 1.

Mean, deviation, size, crop and filter are read from timm's ``pretrained_cfg``, ``preprocessor_config.json`` or
torchvision's weights. Where the owner's library is installed, its own code prepares the picture:
``timm.data.create_transform``, transformers' image processor, the transforms of torchvision's weights. Pixels are
bytes until they are normalised, so that the numbers are the owner's, bit for bit: torchvision's ``ToTensor``
and ``Normalize`` divide bytes by 255, subtract and divide in float32, as ``Normalization`` does.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import Tensor

from ..arguments import Size
from ..errors import ArchitectureError, CheckpointError, ConversionError, OptionError, listed, refusing
from ..plain import read_object
from .names import import_module, library, offline

if TYPE_CHECKING:
    from PIL.Image import Image


Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
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


Transform = Callable[["Image"], Tensor]
"""Prepares a picture: [channels, rows, columns], float32, as the network takes it."""
_TORCHVISION = "torchvision.models"
_OF_PICTURES = ("ImageClassification", "SemanticSegmentation", "ObjectDetection")  # torchvision's transforms
_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
# Numbers of Pillow's filters, by which image processors name them.
_FILTERS: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_CROP_PCT = 0.875  # timm's, where nothing is said
_OF_TIMM = ("input_size", "fixed_input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std")
_PLAIN = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")  # steps of most processors
_FOLLOWED = (*_PLAIN, "size", "resample", "crop_size", "image_mean", "image_std")
_MOMENTS = (("image_mean", 0.0), ("image_std", 1.0))  # each with its neutral number
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
    crop, scaled = Size(*shape[1:]), dict[str, Any]()
    rows, columns = (math.floor(length / (config.get("crop_pct") or _CROP_PCT)) for length in crop)
    is_plain = rows == columns and config.get("crop_mode") in (None, "center")
    scaled = {"scale": rows, "crop": crop} if is_plain else {"scale": crop}
    name = config.get("interpolation")
    return Preprocessing(
        Normalization(_numbers(mean, 0.0), _numbers(std, 1.0)),
        channels=shape[0],
        interpolation=cast(Interpolation, name) if name in get_args(Interpolation) else "bilinear",
        owner=Owner(
            "timm",
            {key: _as_list(config[key]) for key in _OF_TIMM if config.get(key) is not None},
            () if is_plain else tuple(key for key in ("crop_pct", "crop_mode") if config.get(key)),
        ),
        **scaled,
    )


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
    given = {key: getattr(own, key, None) for key in ("mean", "std", "resize_size", "crop_size")}
    scale, crop = given["resize_size"], given["crop_size"]
    return Preprocessing(
        Normalization(_numbers(given["mean"], 0.0), _numbers(given["std"], 1.0)),  # detectors take values from 0 to 1
        scale=scale and scale[0],
        crop=crop and Size(crop[0], crop[-1]),
        interpolation="bilinear" if scale is None else own.interpolation.value,
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
    return Preprocessing(
        Normalization(mean, std),
        interpolation=dict(enumerate(_FILTERS)).get(cast(int, config.get("resample")), "bilinear"),
        owner=Owner("transformers", dict(config), tuple(_unfollowed(config))),
        **_geometry(config),
    )


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
    """A sentence about what of an owner's preprocessing is not followed; none where the owner's own code is used."""
    if known is None or known.owner is None:
        return []
    try:
        owners_transform(known)
    except ConversionError as error:
        asked = known.owner.unfollowed
        lost = (
            f"; {listed(asked)} of the description {'is' if len(asked) == 1 else 'are'} not followed" if asked else ""
        )
        return [f"Pictures are prepared by mean, deviation, size, crop and filter alone: {error}{lost}"]
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
        made: Any = transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True)

    def prepare(picture: Image) -> Tensor:
        prepared: Tensor = made(images=picture, return_tensors="pt")["pixel_values"]
        return prepared.reshape(-1, *prepared.shape[-2:]).float()

    return prepare


def _unfollowed(config: Mapping[str, Any]) -> list[str]:
    """Names of what an image processor's description asks for beyond the plain steps."""
    asked = [key for key, value in config.items() if value and key not in (*_FOLLOWED, *_KINDS) and key[:1] != "_"]
    scaled = config.get("rescale_factor")
    plain = scaled is not None and math.isclose(scaled, 1 / 255)
    return [key for key in asked if not (key == "rescale_factor" and plain)]


def _geometry(config: Mapping[str, Any]) -> dict[str, Any]:
    """Scaling and cropping by an image processor."""
    size = config.get("size")
    if not config.get("do_resize", True) or size is None:
        return {}
    crop = _rectangle(config.get("crop_size")) if config.get("do_center_crop") else None
    shortest = size.get("shortest_edge") if isinstance(size, Mapping) else size if crop is not None else None
    return {"scale": _rectangle(size) if shortest is None else int(shortest), "crop": crop}


def _numbers(value: Any, otherwise: float) -> tuple[float, ...]:
    if value is None:
        return (otherwise,)
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),)


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _rectangle(size: Any) -> Size | None:
    if isinstance(size, Mapping):  # a size with other keys follows the picture
        return Size(int(size["height"]), int(size["width"])) if {"height", "width"} <= size.keys() else None
    return None if size is None else Size(int(size), int(size))
