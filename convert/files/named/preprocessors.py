"""Preprocessing as the owners of networks describe it: timm's ``pretrained_cfg``, and ``preprocessor_config.json``.

A description that asks for something else (borders around a picture, sizes that are multiples) gives its mean and
standard deviation, and pictures are scaled to its size where it has one.
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
from .huggingface import PREPROCESSOR

# Numbers of Pillow's filters, by which image processors name them.
_FILTERS: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_WHOLE = 384  # from this side on ConvNeXt's processor scales to a square and cuts nothing out
_CROP_PCT = 0.875  # timm's, and ConvNeXt's, where nothing is said
_BYTE = 1 / 255
_OWN_WAY = ("Levit", "Owlv2", "Perceiver", "Yolos")  # their classes do more than their options say
_ODD = ("size_divisor", "keep_aspect_ratio", "do_align_long_axis", "do_thumbnail", "do_crop_margin", "pad_size")


def from_timm(config: Mapping[str, Any]) -> Preprocessing | None:
    """The preprocessing that ``timm.data.create_transform`` makes of a ``pretrained_cfg`` for evaluation.

    Args:
        config: timm's description of a network's weights.

    Returns:
        None if it names no mean and deviation, or an input that is no picture.
    """
    shape, mean, std = (config.get(name) for name in ("input_size", "mean", "std"))
    if not (mean and std and shape and len(shape) == 3 and shape[0] in (1, 3, 4)):
        return None
    crop = Size(*shape[1:])
    scale = Size(*(math.floor(length / (config.get("crop_pct") or _CROP_PCT)) for length in crop))
    mode = config.get("crop_mode") or "center"
    known = {"normalization": _normalization(mean, std), "channels": shape[0]}
    known |= {"interpolation": _interpolation(config.get("interpolation"), "bilinear")}
    if mode == "squash":
        return Preprocessing(**known, scale=scale, crop=crop)
    if mode == "center" and scale.rows == scale.columns:
        return Preprocessing(**known, scale=scale.rows, crop=crop)
    return Preprocessing(**known, scale=crop)


def from_folder(folder: Path) -> Preprocessing | None:
    """The preprocessing of a Hugging Face folder, of transformers or of timm; None if it does not describe one."""
    if (folder / PREPROCESSOR).is_file():
        return from_transformers(read_object(folder / PREPROCESSOR))
    try:
        given = read_object(folder / "config.json").get("pretrained_cfg")
    except CheckpointError:
        return None
    return from_timm(given) if isinstance(given, Mapping) else None


def from_transformers(config: Mapping[str, Any]) -> Preprocessing | None:
    """The preprocessing of an image processor of transformers, in its form with Pillow.

    Args:
        config: What ``preprocessor_config.json`` holds.

    Returns:
        None if it does not normalise or rescale pictures, as a tokenizer's or a sound's.
    """
    if not any(key in config for key in ("image_mean", "do_rescale", "do_resize")):
        return None
    number = config.get("resample")
    filters = dict(enumerate(_FILTERS))
    known: dict[str, Any] = {
        "normalization": _rescaled(config),
        "interpolation": filters.get(cast(int, number), "bilinear"),
        "reverse": bool(config.get("do_flip_channel_order")),
        "owner": "transformers",
    }
    return Preprocessing(**known, **_geometry(config))


def _geometry(config: Mapping[str, Any]) -> dict[str, Any]:
    """How an image processor scales and cuts."""
    size = config.get("size")
    if not config.get("do_resize", True) or size is None:
        return {}
    crop = _rectangle(config.get("crop_size")) if config.get("do_center_crop") else None
    if any(config.get(key) for key in _ODD) or str(config.get("image_processor_type")).startswith(_OWN_WAY):
        return {"scale": _rectangle(size) or crop}
    if "crop_pct" in config:
        return _of_convnext(_side(size), config["crop_pct"] or _CROP_PCT)
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return {"scale": _side(size), "longest": size.get("longest_edge"), "crop": crop}
    if isinstance(size, int) and crop is not None:
        return {"scale": size, "crop": crop}
    return {"scale": _rectangle(size), "crop": crop}


def _of_convnext(side: int, crop_pct: float) -> dict[str, Any]:
    if side >= _WHOLE:
        return {"scale": Size(side, side)}
    return {"scale": int(side / crop_pct), "crop": Size(side, side)}


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


def _normalization(mean: Any, std: Any) -> Normalization:
    return Normalization(_numbers(mean, 0.0), _numbers(std, 1.0))


def _numbers(value: Any, otherwise: float) -> tuple[float, ...]:
    if value is None:
        return (otherwise,)
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),)


def _interpolation(name: Any, otherwise: Interpolation) -> Interpolation:
    return cast(Interpolation, name) if name in get_args(Interpolation) else otherwise


def _side(size: Any) -> int:
    return int(size["shortest_edge"] if isinstance(size, Mapping) else size)


def _rectangle(size: Any) -> Size | None:
    if isinstance(size, Mapping):  # what has other keys follows the picture
        return Size(int(size["height"]), int(size["width"])) if {"height", "width"} <= size.keys() else None
    return None if size is None else Size(int(size), int(size))
