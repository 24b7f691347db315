"""Verifies a network in an ONNX file: ONNX Runtime runs it beside the same file with attention.

Each layer's output must lie within its certificate of the convolution of its own input. All other nodes are those of
the file, which gives the same bits where it was brought to another version of the standard. So the difference of the
outputs, which is reported, is rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import nn

from ..convert.agreement.networks import LayerShape
from ..convert.agreement.report import CERTIFIED_RANGE
from ..convert.certificate.layer import certify_error, number
from ..convert.errors import OptionError, OtherNetworkError, Problem, refusing
from ..convert.files.open import open_network
from ..convert.files.weights import read_checkpoint
from ..convert.network.convert import convert_model
from ..convert.onnx import onnx_package
from ..convert.onnx.run import Feeds, random_feeds, session
from ..convert.onnx.write import DEFAULT_FORM, FORM, FORMS, SOURCE, attention_model, flaw, form_named
from ..convert.plain import path_in
from ..convert.write import PROGRAM
from ..show.text import Table, layer_name, problem_lines
from .inputs import refuse_conversion
from .options import InputOptions


@dataclass(frozen=True)
class OnnxCheck:
    """The check of a network in an ONNX file.

    Attributes:
        form: Form of the attention.
        layers: The layers that are attention, by name.
        bounds: The certificate of each for inputs from -1 to 1, in this form.
        outputs: The largest difference between the two networks' outputs, and the largest output, by name.
        left: Convolution nodes that are left.
        seed: Seed of the inputs.
        flaw: The first thing that onnx's checker finds wrong with the file with attention, and not with the original.
        is_kept: Whether the existing file gives exactly the same bits as one that is written now.
        difference: Why the file with attention is another network, or None.
        is_whole: Whether all that was measured is printed.
    """

    form: str
    layers: Mapping[str, LayerShape]
    bounds: Mapping[str, float]
    outputs: Mapping[str, tuple[float, float]]
    left: tuple[Problem, ...]
    seed: int
    flaw: str | None = None
    is_kept: bool = True
    difference: str | None = None
    is_whole: bool = False

    @property
    def exit_code(self) -> int:
        """0 if some layer is attention, all are within their certificates, and outputs are of one shape and finite."""
        finite = all(difference < float("inf") for difference, _ in self.outputs.values())
        is_sound = self.flaw is None and self.difference is None
        return int(not self.layers or not finite or not self.is_kept or not is_sound)

    def to_json(self) -> dict[str, Any]:
        """The check as plain data."""
        return {
            "form": self.form,
            "seed": self.seed,
            "kept": self.is_kept,
            "flaw": self.flaw,
            "difference": self.difference,
            "layers": [{"name": name, "bound": self.bounds[name]} for name in self.layers],
            "outputs": {name: {"difference": d, "largest": size} for name, (d, size) in self.outputs.items()},
            "left": [vars(problem) for problem in self.left],
        }

    def shown(self) -> list[Table | str]:
        """The layers, what is left, with ``is_whole`` each output and the seed, too, and last the outcome."""
        rows = tuple(
            (layer_name(name), shape.geometry, shape.heads, f"{shape.alpha:g}", number(self.bounds[name]))
            for name, shape in self.layers.items()
        )
        low, high = CERTIFIED_RANGE
        header = ("layer", "geometry", "heads", "sharpness", f"worst case, inputs on [{low:g}, {high:g}]")
        shown: list[Table | str] = [Table(header, rows), *problem_lines("left as they are", self.left)]
        if self.is_whole:
            for name, (apart, largest) in self.outputs.items():
                values = f"measured {number(apart)}, of values up to {number(largest)}"
                shown.append(f"Output {name}: {values}; no worst case.")
            shown.append(f"Seed: {self.seed}")
        outcome, *reasons = self.outcome
        return [*shown, *reasons, outcome]

    @property
    def outcome(self) -> list[str]:
        """The outcome in a line, and the reasons if it is not verified."""
        apart = number(max((apart for apart, _ in self.outputs.values()), default=0.0))
        if not self.exit_code:
            what = f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)} in the form {self.form}"
            return [f"Verified: ONNX Runtime ran the file and its attention, {what}; outputs measured {apart} apart."]
        lines = [f"Not verified; outputs measured {apart} apart."]
        if self.difference is not None:
            lines.append(f"With attention it is not the same network: {self.difference}")
        elif not self.layers:
            lines.append("No convolution of the file became attention.")
        if self.flaw is not None:
            lines.append(f"onnx's checker refuses the file with attention: {self.flaw}")
        if not self.is_kept:
            lines.append("The folder's ONNX file gives other outputs than its layers give when they are written again.")
        return lines


def verify_onnx_file(
    path: Path,
    *,
    original: Path | None,
    form: str | None,
    alpha: float | None,
    skip_unsupported: bool,
    inputs: InputOptions,
    whole: bool = False,
) -> OnnxCheck:
    """``conv2attn verify`` of a network in an ONNX file, or of a folder converted from the file ``original``."""
    if original is None:
        cnn = open_network(path).cnn()
        made = convert_model(cnn, alpha=alpha, inplace=True, skip_unsupported=skip_unsupported)
        return replace(_verified(path, made.model, form or DEFAULT_FORM, inputs), is_whole=whole)
    refuse_conversion(path, alpha=alpha, skip_unsupported=skip_unsupported)
    if not (path / PROGRAM).is_file():
        raise OptionError(f"{path} holds no {PROGRAM}: it was not converted from an ONNX file, or not as a whole")
    converted = path_in(path, PROGRAM)
    read_checkpoint(converted)  # ONNX Runtime gets no file that is damaged, or names others outside the folder
    with refusing(f"ONNX Runtime cannot run {converted}"):
        known = session(converted).get_modelmeta().custom_metadata_map
    if known.get(SOURCE) != read_checkpoint(original).sha256:
        raise OptionError(f"{path} was not converted from {original}")
    own = form_named(str(known.get(FORM))).name
    if form not in (None, own):
        raise OptionError(f"{converted} is in the form {own}, not {form}")
    model = open_network(path).as_saved()
    return replace(_verified(original, model, own, inputs, converted), is_whole=whole)


def _verified(
    path: Path, model: nn.Module, form: str, chosen: InputOptions, converted: Path | None = None
) -> OnnxCheck:
    """Runs the network of an ONNX file beside one with attention, whose layers ``model`` has by their names.

    The file ``converted`` was written before, and is to be the same.
    """
    onnx_package("reading ONNX files")
    from ..convert.onnx.beside import Run, run, runtime

    seed = chosen.seed or 0
    feeds = partial(random_feeds, size=chosen.size, count=chosen.count, seed=seed)
    try:
        whole = attention_model(path, dict(model.named_modules(remove_duplicate=False)).get, form=form)
    except OtherNetworkError as error:
        # it cannot be written as the same network; a file that was written before is run all the same
        outputs: dict[str, tuple[float, float]] = {}
        if converted is not None:
            with refusing(f"ONNX Runtime cannot run {path}, or {converted}"):
                original = session(path)
                outputs = _apart(original, session(converted), feeds(original))
        return OnnxCheck(form, {}, {}, outputs, (), seed, difference=str(error))
    # run the file, and the same file with attention, on the same inputs
    with TemporaryDirectory() as folder:
        made = Path(folder) / PROGRAM
        whole.save(made)
        problem = flaw(made) if flaw(path) is None else None
        with refusing(f"ONNX Runtime cannot run {path}"):
            original, attention = session(path), session(made)
            inputs = feeds(original)
            outputs, is_kept = _apart(original, attention, inputs), True
            difference = whole.difference(Run(runtime, inputs, run(original, inputs)))
        if converted is not None:
            with refusing(f"ONNX Runtime cannot run {converted}"):
                is_kept = all(apart == 0 for apart, _ in _apart(attention, session(converted), inputs).values())
    # the certificate of each layer in this form
    layers = {found.layer: layer for found, layer, _ in whole.replaced}
    bounds = {}
    for name, layer in layers.items():
        values = layer.values()
        bounds[name] = certify_error(values, FORMS[form].error(values), input_range=CERTIFIED_RANGE).bound
    shapes = {name: LayerShape.of(layer) for name, layer in layers.items()}
    return OnnxCheck(form, shapes, bounds, outputs, (*whole.refused, *whole.left), seed, problem, is_kept, difference)


def _apart(original: Any, converted: Any, inputs: Feeds) -> dict[str, tuple[float, float]]:
    names = [port.name for port in original.get_outputs()]
    pairs = zip(names, original.run(names, dict(inputs)), converted.run(names, dict(inputs)), strict=True)
    return {name: (_difference(a, b), float(np.abs(a).max(initial=0))) for name, a, b in pairs if _is_numbers(a)}


def _difference(a: Any, b: Any) -> float:
    """The largest difference; infinite for two shapes."""
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype("float64") - b.astype("float64")).max(initial=0))


def _is_numbers(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
