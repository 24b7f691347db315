"""``conv2attn check``: has every certificate in a folder's ``report.json`` checked against the weights in the folder.

The report says geometry, dtype, alpha, range and bound. What is stored of the layers is read from ``config.json`` and
the weights alone, and so is whether a layer is one that the theorem covers: the report cannot change that. A checksum
(``convert/files/report.py``) tells whether report, description and weights were written together.
``proofs/claims/certificate/rounding.py`` names the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ....convert.errors import CheckpointError
from ....convert.files.folder import read_folder
from ....convert.files.report import checksum
from ....convert.files.write import CONFIG, REPORT
from ....convert.heads.encoding import is_power_of_two
from ....convert.heads.regime import ONE_HOT_ALPHA, compute_dtype
from ....convert.model.report import LayerRecord
from ....convert.plain import from_plain, path_in, read_json, read_object
from ....convert.spec import ConvSpec
from .program import DTYPES, Claimed, Running, Stored, running
from .verdicts import OTHER_FOLDER, REFUSALS, Checked, CheckedLayer, Verdict

_MOST = 200  # characters of a report's text that are repeated


@dataclass(frozen=True)
class _Certificate:
    """Bounds of a report on a layer: its parts, and their sum."""

    bound: float
    tail: float
    rounding_attention: float
    rounding_convolution: float


@dataclass(frozen=True)
class _Record:
    """A report's record of a layer, as far as it is read."""

    spec: ConvSpec
    heads: int
    dtype: str
    alpha: float
    certificate: _Certificate


def check_folder(folder: Path, *, progress: Callable[[int], None] = lambda _: None) -> Checked:
    """Checks the certificate of every layer in a folder.

    Args:
        folder: Folder that ``save_converted`` wrote.
        progress: Called with 1 after each layer.

    Raises:
        CheckpointError: The folder is not a converted model, or is damaged.
        ToolError: The program that checks is not built.
    """
    config, saved = read_folder(folder)
    report = read_object(folder / REPORT)
    input_range, records = _read(report, folder / REPORT)
    description: Any = read_json(path_in(folder, CONFIG))
    is_whole = report.get("sha256") == checksum(report, description, saved.state_dict)
    layers = []
    with running() as program:
        for entry in config.layers:
            record = records.pop(tuple(entry.names), None)
            layer = check_layer(program, record, entry, saved.state_dict, input_range)
            if layer.verdict is Verdict.ACCEPTED and not is_whole:
                layer = replace(layer, verdict=Verdict.REFUSED, reason=OTHER_FOLDER)
            layers.append(layer)
            progress(1)
    layers += [CheckedLayer(str(names[0]), Verdict.REFUSED, "the folder holds no such layer") for names in records]
    return Checked(folder, input_range, tuple(layers))


def _read(report: Mapping[str, Any], path: Path) -> tuple[tuple[float, float], dict[tuple[str, ...], Any]]:
    """A report's range, and its record of each layer, by the layer's names.

    Raises:
        CheckpointError: It is malformed.
    """
    try:
        low, high = report["certified_range"]
        records = {tuple(record["names"]): record for record in report["layers"]}
        if len(records) < len(report["layers"]) or not all(records) or {type(low), type(high)} - {int, float}:
            raise ValueError("a layer has no name, or one that another has, or the range is none")
        return (float(low), float(high)), records
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} is malformed: {error!r:.{_MOST}}") from error


def check_layer(
    program: Running,
    record: Mapping[str, Any] | None,
    entry: LayerRecord,
    state: Mapping[str, Tensor],
    input_range: tuple[float, float],
) -> CheckedLayer:
    """Checks a certificate: a report's record of a layer against the folder's description and weights of it."""
    name = entry.names[0]
    if record is None:
        return CheckedLayer(name, Verdict.REFUSED, "the report does not name this layer")
    if (reason := _scores_otherwise(entry, state)) is not None:
        return CheckedLayer(name, Verdict.NOT_COVERED, reason)
    stored = _stored(entry, state)
    if isinstance(stored, str):
        return CheckedLayer(name, Verdict.REFUSED, stored)
    if (reason := _computed_otherwise(stored)) is not None:
        return CheckedLayer(name, Verdict.NOT_COVERED, reason)
    if record.get("certificate") is None:
        given = str(record.get("uncertified"))[:_MOST]
        return CheckedLayer(name, Verdict.NOT_COVERED, f"the report has no certificate: {given}")
    try:
        claimed = _claimed(record, input_range)
    except (KeyError, TypeError, ValueError) as error:
        return CheckedLayer(name, Verdict.REFUSED, f"the report is malformed: {str(error)[:_MOST]}")
    answer = program.verdict(claimed, stored)
    if answer == "Accepted":
        return CheckedLayer(name, Verdict.ACCEPTED, None, claimed.bound)
    return CheckedLayer(name, Verdict.REFUSED, REFUSALS.get(answer, answer), claimed.bound)


def _scores_otherwise(entry: LayerRecord, state: Mapping[str, Tensor]) -> str | None:
    """Why a layer has other than plain weights and scores by distance alone, or None if it has just these."""
    if entry.kind is not None:
        return f"its weights are computed, as {entry.kind[:_MOST]}"
    own = {key.removeprefix(_key(entry, "")) for key in state if key.startswith(_key(entry, ""))}
    if any(key.startswith("content.") for key in own):
        return "it has content terms"
    if any(key.startswith("axis_scores.") for key in own):
        return "it has learned positional scores"
    return None


def _stored(entry: LayerRecord, state: Mapping[str, Tensor]) -> Stored | str:
    """A layer as the folder holds it, or its flaw in words."""
    spec = entry.spec
    shapes = {
        "weight": spec.weight_shape,
        "alpha": (spec.num_heads,),
        "centers": (spec.num_heads, spec.axes),
        **({"bias": (spec.out_channels,)} if spec.bias else {}),
    }
    found = {own: state[_key(entry, own)] for own in shapes if _key(entry, own) in state}
    for own, shape in shapes.items():
        if own not in found or found[own].shape != shape or found[own].dtype not in DTYPES:
            return f"the folder's {own} is missing, or is not that of its geometry"
    weight, alphas, centers = found["weight"], found["alpha"], found["centers"]
    bias = found.get("bias", weight.new_zeros(spec.out_channels))
    if weight.dtype != bias.dtype or alphas.dtype != centers.dtype:
        return "the folder's numbers are of several dtypes"
    return Stored(spec, spec.kernel(weight), bias, alphas, centers)


def _computed_otherwise(stored: Stored) -> str | None:
    """Why attention is not one-hot by the theorem, or sums are not as it has them; None if they are."""
    if stored.spec.transposed and stored.kernel.dtype != compute_dtype(stored.kernel.dtype):
        return "it is transposed and in half precision, where PyTorch rounds each tap"
    threshold = ONE_HOT_ALPHA[compute_dtype(stored.kernel.dtype)]
    alphas = stored.alphas.double().tolist()
    if not all(alpha >= threshold for alpha in alphas):
        return f"attention is soft: an alpha is below {threshold:g}"
    if not all(map(is_power_of_two, alphas)):
        return "an alpha is no power of two, so that scores are rounded"
    return None


def _claimed(record: Mapping[str, Any], input_range: tuple[float, float]) -> Claimed:
    """A report's claim about a layer.

    Raises:
        KeyError: Something is missing.
        TypeError: The certificate is no mapping.
        ValueError: Something is of another kind, or has another value.
    """
    certificate = {name: record["certificate"][name] for name in _Certificate.__dataclass_fields__}
    plain = {name: record[name] for name in _Record.__dataclass_fields__} | {"certificate": certificate}
    found = from_plain(_Record, plain)
    bounds, dtypes = found.certificate, {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}
    parts = (bounds.tail, bounds.rounding_attention, bounds.rounding_convolution)
    if min(parts) < 0 or not math.isclose(math.fsum(parts), bounds.bound, rel_tol=2.0**-20):
        raise ValueError("tail and rounding do not add up to the bound")
    if found.dtype not in dtypes:
        raise ValueError(f"there is no dtype {found.dtype!r:.80}")
    if found.heads != found.spec.num_heads:
        raise ValueError(f"a layer of {found.spec} has {found.spec.num_heads} heads")
    return Claimed(found.spec, dtypes[found.dtype], found.alpha, *input_range, bounds.bound)


def _key(entry: LayerRecord, own: str) -> str:
    """The key of a layer's tensor in the folder's weights; of an empty name, what all keys of the layer start with."""
    return f"{entry.names[0]}.{own}" if entry.names[0] else own
