"""Preprocessing by networks' owners: timm's ``pretrained_cfg``, ``preprocessor_config.json``, torchvision's weights.

Of a description that asks for more (borders around a picture, sizes that are multiples), the mean and standard
deviation are used, and pictures are scaled to its size if it has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

from ...errors import CheckpointError
from ...plain import read_object
from ...preprocessing import Interpolation, Normalization, Preprocessing
from ...size import Size
from .registries import import_module

_TORCHVISION = "torchvision.models"
_OF_PICTURES = ("ImageClassification", "SemanticSegmentation", "ObjectDetection")  # torchvision's transforms
_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
# Numbers of Pillow's filters, by which image processors name them.
_FILTERS: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_WHOLE = 384  # from this side on ConvNeXt's processor scales to a square and cuts nothing out
_CROP_PCT = 0.875  # timm's, and ConvNeXt's, where nothing is said
_BYTE = 1 / 255
_OWN_WAY = ("Levit", "Owlv2", "Perceiver", "Yolos")  # their classes do more than their options say
_ODD = ("size_divisor", "keep_aspect_ratio", "do_align_long_axis", "do_thumbnail", "do_crop_margin", "pad_size")


def from_folder(folder: Path) -> Preprocessing | None:
    """The preprocessing of a Hugging Face folder, of transformers or of timm; None if it does not describe one."""
    if (folder / _PREPROCESSOR).is_file():
        return from_transformers(read_object(folder / _PREPROCESSOR))
    try:
        return from_timm(read_object(folder / _CONFIG).get("pretrained_cfg"))
    except CheckpointError:
        return None


def from_timm(config: object) -> Preprocessing | None:
    """The preprocessing that ``timm.data.create_transform`` makes of a ``pretrained_cfg`` for evaluation.

    None if that is none, names no mean and deviation, or an input that is no picture.
    """
    if not isinstance(config, Mapping):
        return None
    shape, mean, std = (config.get(name) for name in ("input_size", "mean", "std"))
    if not (mean and std and shape and len(shape) == 3 and shape[0] in (1, 3, 4)):
        return None
    crop = Size(*shape[1:])
    rows, columns = (math.floor(length / (config.get("crop_pct") or _CROP_PCT)) for length in crop)
    name, mode = config.get("interpolation"), config.get("crop_mode") or "center"
    scaled: dict[str, Any] = {"scale": crop}
    if mode == "squash":
        scaled = {"scale": Size(rows, columns), "crop": crop}
    elif mode == "center" and rows == columns:
        scaled = {"scale": rows, "crop": crop}
    interpolation = cast(Interpolation, name) if name in get_args(Interpolation) else "bilinear"
    normalization = Normalization(_numbers(mean, 0.0), _numbers(std, 1.0))
    return Preprocessing(normalization, channels=shape[0], interpolation=interpolation, **scaled)


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
    )


def from_transformers(config: Mapping[str, Any]) -> Preprocessing | None:
    """The preprocessing of an image processor, of a ``preprocessor_config.json``, in its form with Pillow.

    None if it does not normalise or rescale pictures, as a tokenizer's or a sound's.
    """
    if not any(key in config for key in ("image_mean", "do_rescale", "do_resize")):
        return None
    return Preprocessing(
        _rescaled(config),
        interpolation=dict(enumerate(_FILTERS)).get(cast(int, config.get("resample")), "bilinear"),
        reverse=bool(config.get("do_flip_channel_order")),
        owner="transformers",
        **_geometry(config),
    )


def _geometry(config: Mapping[str, Any]) -> dict[str, Any]:
    """Scaling and cropping by an image processor."""
    size = config.get("size")
    if not config.get("do_resize", True) or size is None:
        return {}
    crop = _rectangle(config.get("crop_size")) if config.get("do_center_crop") else None
    shortest = size.get("shortest_edge") if isinstance(size, Mapping) else size
    if any(config.get(key) for key in _ODD) or str(config.get("image_processor_type")).startswith(_OWN_WAY):
        return {"scale": _rectangle(size) or crop}
    if "crop_pct" in config and shortest is not None:  # ConvNeXt's
        square = Size(int(shortest), int(shortest))
        scaled = int(shortest / (config["crop_pct"] or _CROP_PCT))
        return {"scale": square} if shortest >= _WHOLE else {"scale": scaled, "crop": square}
    if isinstance(size, Mapping) and shortest is not None:
        return {"scale": int(shortest), "longest": size.get("longest_edge"), "crop": crop}
    if isinstance(size, int) and crop is not None:
        return {"scale": size, "crop": crop}
    return {"scale": _rectangle(size), "crop": crop}


def _rescaled(config: Mapping[str, Any]) -> Normalization:
    """Mean and deviation for pictures from 0 to 1: a byte b is first b f - o, with f = 1 / 255 and o = 0 mostly.

    (b f - o - mean) / std = (b / 255 - (mean + o) / (255 f)) / (std / (255 f))
    """
    factor = config.get("rescale_factor", _BYTE) if config.get("do_rescale", True) else 1.0
    unit, offset = (1.0 if factor == _BYTE else factor * 255), float(bool(config.get("rescale_offset")))
    mean: Any = config.get("image_mean") if config.get("do_normalize") else None
    std: Any = config.get("image_std") if mean is not None else None
    means, stds = _numbers(mean, 0.0), _numbers(std, 1.0)
    if config.get("include_top"):  # EfficientNet's divides by the deviation once more
        stds = tuple(deviation**2 for deviation in stds)
    return Normalization(tuple((m + offset) / unit for m in means), tuple(deviation / unit for deviation in stds))


def _numbers(value: Any, otherwise: float) -> tuple[float, ...]:
    if value is None:
        return (otherwise,)
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),)


def _rectangle(size: Any) -> Size | None:
    if isinstance(size, Mapping):  # a size with other keys follows the picture
        return Size(int(size["height"]), int(size["width"])) if {"height", "width"} <= size.keys() else None
    return None if size is None else Size(int(size), int(size))
