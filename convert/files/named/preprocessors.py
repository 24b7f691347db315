"""Preprocessing by networks' owners: timm's ``pretrained_cfg``, ``preprocessor_config.json``, torchvision's weights.

Mean, deviation, size, crop and filter are read from a description, for those who lack the owner's library. Where it is
installed, its own code prepares pictures: ``timm.data.create_transform``, transformers' image processor, the transforms
of torchvision's weights.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from torch import Tensor

from ...arguments import Size
from ...errors import ArchitectureError, CheckpointError, ConversionError, listed, refusing
from ...plain import read_object
from ...preprocessing import Interpolation, Normalization, Owner, Preprocessing
from .registries import import_module, library, offline

if TYPE_CHECKING:
    from PIL.Image import Image

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
