"""``conv2attn check``: has every certificate in a folder's ``report.json`` checked against the weights in the folder.

The report says geometry, dtype, alpha, range and bound. What is stored of the layers is read from ``config.json`` and
the weights alone, and so is whether a layer is one that the theorem covers: the report cannot change that. A checksum
(``convert/files/report.py``) tells whether report, description and weights were written together.
``proofs/claims/certificate/rounding.py`` names the theorems.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ....convert.errors import CheckpointError, GeometryError
from ....convert.files.folder import read_folder
from ....convert.files.report import checksum
from ....convert.files.write import CONFIG, REPORT
from ....convert.heads.encoding import is_power_of_two
from ....convert.heads.regime import ONE_HOT_ALPHA, compute_dtype
from ....convert.model.report import LayerRecord
from ....convert.plain import path_in, read_json
from ....convert.spec import ConvSpec
from .program import DTYPES, Claimed, Running, Stored, running
from .verdicts import OTHER_FOLDER, REFUSALS, Checked, CheckedLayer, Verdict

_MOST = 200  # characters of a report's text that are repeated


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
    report, input_range, records = _report(folder)
    description: Any = read_json(path_in(folder, CONFIG))
    is_whole = report.get("sha256") == checksum(report, description, saved.state_dict)
    layers = []
    with running() as program:
        for entry in config.layers:
            record = records.pop(tuple(entry.names), None)
            layer = check_layer(program, record, entry, saved.state_dict, input_range)
            layers.append(layer if is_whole else _of_another_folder(layer))
            progress(1)
    layers += [CheckedLayer(names[0], Verdict.REFUSED, "the folder holds no such layer") for names in records]
    return Checked(folder, input_range, tuple(layers))


def check_layer(
    program: Running,
    record: Mapping[str, Any] | None,
    entry: LayerRecord,
    state: Mapping[str, Tensor],
    input_range: tuple[float, float],
) -> CheckedLayer:
    """Checks one certificate.

    Args:
        program: The program that checks.
        record: The report's record of the layer, or None if there is none.
        entry: The folder's description of the layer.
        state: The folder's weights.
        input_range: Input range of the report's bounds.
    """
    name = entry.names[0]
    if record is None:
        return CheckedLayer(name, Verdict.REFUSED, "the report does not name this layer")
    certificate = record.get("certificate")
    bound: Any = certificate.get("bound") if isinstance(certificate, Mapping) else None
    bound = float(bound) if type(bound) in (int, float) and abs(bound) <= sys.float_info.max else None
    if (reason := _scores_otherwise(entry, state)) is not None:
        return CheckedLayer(name, Verdict.NOT_COVERED, reason, bound)
    stored = _stored(entry, state)
    if isinstance(stored, str):
        return CheckedLayer(name, Verdict.REFUSED, stored, bound)
    if (reason := _computed_otherwise(stored)) is not None:
        return CheckedLayer(name, Verdict.NOT_COVERED, reason, bound)
    if certificate is None:
        given = str(record.get("uncertified"))[:_MOST]
        return CheckedLayer(name, Verdict.NOT_COVERED, f"the report has no certificate: {given}")
    try:
        claimed = _claimed(record, bound, input_range)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return CheckedLayer(name, Verdict.REFUSED, f"the report is malformed: {str(error)[:_MOST]}", bound)
    answer = program.verdict(claimed, stored)
    if answer == "Accepted":
        return CheckedLayer(name, Verdict.ACCEPTED, None, bound)
    return CheckedLayer(name, Verdict.REFUSED, REFUSALS.get(answer, answer), bound)


def _of_another_folder(layer: CheckedLayer) -> CheckedLayer:
    """Verdict on a layer whose report, description and weights do not belong together."""
    accepted = layer.verdict is Verdict.ACCEPTED
    return replace(layer, verdict=Verdict.REFUSED, reason=OTHER_FOLDER) if accepted else layer


def _report(
    folder: Path,
) -> tuple[Mapping[str, Any], tuple[float, float], dict[tuple[str, ...], Mapping[str, Any]]]:
    """A report, its range, and its record of each layer, by the layer's names.

    Raises:
        CheckpointError: It cannot be read.
    """
    path = folder / REPORT
    try:
        report: Any = read_json(path_in(folder, REPORT))
        low, high = map(_number, report["certified_range"])
        records = {tuple(map(_text, record["names"])): record for record in report["layers"]}
        if len(records) < len(report["layers"]) or not all(records):
            raise CheckpointError(f"{path} is malformed: a layer has no name, or one that another has")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from error
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is malformed: {error!r:.{_MOST}}") from error
    return report, (low, high), records


def _number(value: Any) -> float:
    """A number of a report.

    Raises:
        TypeError: It is none.
    """
    if type(value) not in (int, float):
        raise TypeError(f"{value!r:.80} is no number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no name")
    return value


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


def _claimed(record: Mapping[str, Any], bound: float | None, input_range: tuple[float, float]) -> Claimed:
    """A report's claim about a layer.

    Raises:
        KeyError: Something is missing.
        TypeError: Something is of another type.
        ValueError: Something has another value.
    """
    dtypes = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}
    alpha = record["alpha"]
    if bound is None or type(alpha) not in (int, float):
        raise TypeError("bound and alpha are numbers")
    certificate = record["certificate"]
    parts = [_number(certificate[name]) for name in ("tail", "rounding_attention", "rounding_convolution")]
    if min(parts) < 0 or not math.isclose(math.fsum(parts), bound, rel_tol=2.0**-20):
        raise ValueError("tail and rounding do not add up to the bound")
    if record["dtype"] not in dtypes:
        raise ValueError(f"there is no dtype {record['dtype']!r:.80}")
    try:
        spec = ConvSpec.from_json(dict(record["spec"]))
    except GeometryError as error:
        raise ValueError(str(error)) from error
    if record["heads"] != spec.num_heads or type(record["heads"]) is not int:
        raise ValueError(f"a layer of {spec} has {spec.num_heads} heads")
    return Claimed(spec, dtypes[record["dtype"]], float(alpha), *input_range, bound)


def _key(entry: LayerRecord, own: str) -> str:
    """The key of a layer's tensor in the folder's weights; of an empty name, what all keys of the layer start with."""
    return f"{entry.names[0]}.{own}" if entry.names[0] else own
