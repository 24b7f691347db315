"""Verifies a network in an ONNX file: its attention beside its convolutions, both run by ONNX Runtime.

Each layer is held against its certificate on what comes to it in the network, as ``network.py`` does with PyTorch's.
The two files are also run beside each other; the difference of their outputs is reported, and has no known bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from ...convert.certificate.comparison import LayerComparison
from ...convert.certificate.data import measure_input
from ...convert.certificate.layer import certify_error
from ...convert.errors import OptionError, Problem, refusing
from ...convert.export.onnx.forms import DEFAULT_FORM, FORMS, form_named
from ...convert.export.onnx.watched import Watched, watched_model
from ...convert.export.onnx.whole import FORM, SOURCE, attention_model
from ...convert.files.checkpoint import read_checkpoint
from ...convert.files.open import open_network
from ...convert.files.write import PROGRAM
from ...convert.heads.values import LayerValues
from ...convert.model.convert import convert_model
from ...convert.plain import path_in
from ...convert.size import Size
from ..terminal.names import problem_lines
from ..terminal.output import Table
from .agreement import NOTHING_RAN, LayerShape, beyond_line, layer_table
from .inputs import refuse_conversion
from .onnx_run import IMAGES, Feeds, random_feeds, session


@dataclass(frozen=True)
class OnnxCheck:
    """The check of a network in an ONNX file."""

    form: str  # form of the attention
    layers: tuple[LayerComparison, ...]  # each layer, beside its convolution on the same input
    # names of the layers that lie within other nodes, and were run by themselves on random numbers
    alone: tuple[str, ...]
    shapes: Mapping[str, LayerShape]  # the layers, by name
    # the largest difference between the two networks' outputs, and the largest output, by name
    outputs: Mapping[str, tuple[float, float]]
    left: tuple[Problem, ...]  # convolution nodes that are left
    seed: int  # seed of the inputs
    is_kept: bool = True  # whether the existing file gives exactly the same bits as one that is written now

    @property
    def exit_code(self) -> int:
        """0 if some layer ran, every one stayed within its bound, and all outputs have one shape and no NaN."""
        finite = all(difference < float("inf") for difference, _ in self.outputs.values())
        return int(not self.layers or not finite or not self.is_kept or bool(self._beyond))

    @property
    def _beyond(self) -> list[str]:
        return [layer.name for layer in self.layers if not layer.own <= layer.bound]

    def to_json(self) -> dict[str, Any]:
        """The check as plain data."""
        return {
            "form": self.form,
            "seed": self.seed,
            "kept": self.is_kept,
            "layers": [layer.to_json() | {"alone": layer.name in self.alone} for layer in self.layers],
            "outputs": {name: {"difference": d, "largest": size} for name, (d, size) in self.outputs.items()},
            "left": [vars(problem) for problem in self.left],
        }

    def shown(self) -> list[Table | str]:
        """The check as tables and lines."""
        within = f"All {len(self.layers)} layers are within their bounds, in the form {self.form}, run by ONNX Runtime."
        lines = [beyond_line(self._beyond) if self._beyond else within if self.layers else NOTHING_RAN]
        if not self.is_kept:
            lines.append("The folder's ONNX file gives other outputs than its layers give when they are written anew.")
        if self.alone:
            lines.append(f"{len(self.alone)} of them lie within other nodes, and were run by themselves.")
        for name, (apart, largest) in self.outputs.items():
            lines.append(f"Output {name}: {apart:.1e} apart; the largest is {largest:.2g}.")
        table = layer_table("layer", self.shapes, {self.form: self.layers})
        return [table, *problem_lines("left as they are", self.left), *lines, f"Seed: {self.seed}"]


def verify_onnx_file(
    path: Path,
    *,
    original: Path | None,
    form: str | None,
    alpha: float | None,
    skip_unsupported: bool,
    count: int | None,
    size: Size | None,
    seed: int | None,
) -> OnnxCheck:
    """``conv2attn verify`` of a network in an ONNX file, or of a folder that was converted from the file ``original``.

    Raises:
        OptionError: The folder has no complete file, was made of another file, or is in another form.
        ToolError: ONNX Runtime is not installed.
        ConversionError: The file cannot be read or run.
    """
    seed = seed or 0

    def feeds(model: Any) -> Feeds:
        return random_feeds(model, size=size, count=count, seed=seed)

    if original is None:
        cnn = open_network(path).cnn()
        made = convert_model(cnn, alpha=alpha, inplace=True, skip_unsupported=skip_unsupported)
        return _verified(path, made.model, form or DEFAULT_FORM, feeds, seed)
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
    return _verified(original, model, own, feeds, seed, converted)


def _verified(
    path: Path, model: nn.Module, form: str, feeds: Callable[[Any], Feeds], seed: int, converted: Path | None = None
) -> OnnxCheck:
    """Runs the network of an ONNX file beside one with attention, whose layers ``model`` has by their names.

    The file ``converted`` was written before, and is to be the same.
    """
    named = dict(model.named_modules(remove_duplicate=False)).get
    with ExitStack() as stack:
        whole = attention_model(path, named, form=form)
        made = Path(stack.enter_context(TemporaryDirectory())) / PROGRAM
        whole.write(made)
        with refusing(f"ONNX Runtime cannot run {path}"):
            original, attention = session(path), session(made)
            inputs = feeds(original)
            ends = {port.name for port in (*original.get_inputs(), *original.get_outputs())}
            content, watched = watched_model(path, named, form=form, given=ends)
            outputs, is_kept = _apart(original, attention, inputs), True
            layers = _compare_layers(content, watched, inputs, form)
        if converted is not None:
            with refusing(f"ONNX Runtime cannot run {converted}"):
                is_kept = all(apart == 0 for apart, _ in _apart(attention, session(converted), inputs).values())
    alone = tuple(one.name for one in watched if one.own is not None)
    shapes = {one.name: LayerShape.of(one.layer) for one in watched}
    return OnnxCheck(form, tuple(layers), alone, shapes, outputs, (*whole.refused, *whole.left), seed, is_kept)


def _apart(original: Any, converted: Any, inputs: Feeds) -> dict[str, tuple[float, float]]:
    """The largest difference of each output, and its largest value."""
    names = [port.name for port in original.get_outputs()]
    pairs = zip(names, original.run(names, dict(inputs)), converted.run(names, dict(inputs)), strict=True)
    return {name: (_difference(a, b), float(np.abs(a).max(initial=0))) for name, a, b in pairs if _is_numbers(a)}


def _compare_layers(content: bytes, watched: Sequence[Watched], inputs: Feeds, form: str) -> list[LayerComparison]:
    """Compares each layer with its convolution: all watchable ones in one run, then the others by themselves."""
    together = [one for one in watched if one.own is None]
    wanted = list(dict.fromkeys(name for one in together for name in (one.x, one.convolution, one.attention)))
    computed = [name for name in wanted if name not in inputs]
    values = dict(inputs)
    if computed:  # no names would mean all outputs
        values |= dict(zip(computed, session(content).run(computed, dict(inputs)), strict=True))
    alone = [(one, _run_alone(one, one.own)) for one in watched if one.own is not None]
    return [_compared(one, values, form) for one in together] + [_compared(one, own, form) for one, own in alone]


def _run_alone(one: Watched, network: bytes) -> Feeds:
    """Runs a layer's own network on random numbers, of a size that its kernel fits into."""
    spec = one.layer.spec
    x = torch.randn(
        IMAGES, spec.in_channels, *(reach + 8 for reach in spec.reach), dtype=one.layer.weight.dtype
    ).numpy()
    names = [one.convolution, one.attention]
    return {one.x: x} | dict(zip(names, session(network).run(names, {one.x: x}), strict=True))


def _compared(one: Watched, values: Feeds, form: str) -> LayerComparison:
    conv, attention = values[one.convolution], values[one.attention]
    seen = measure_input(one.layer, [torch.from_numpy(values[one.x])])
    error = FORMS[form].error(LayerValues.of(one.layer))
    bound = certify_error(LayerValues.of(one.layer), error, input_range=seen.input_range, sums=seen.sums).bound
    apart, largest = _difference(conv, attention), float(np.abs(conv.astype("float64")).max(initial=0))
    return LayerComparison(one.name, own=apart, bound=bound, inherited=0.0, total=apart, outputs=largest)


def _difference(a: Any, b: Any) -> float:
    """The largest difference; infinite for two shapes."""
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype("float64") - b.astype("float64")).max(initial=0))


def _is_numbers(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
