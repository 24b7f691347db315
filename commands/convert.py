"""``conv2attn convert`` makes a checkpoint a folder with attention, bounds and page; ``conv2attn plan`` previews it.

The whole network that ``conv2attn convert`` writes where the network came as an ONNX file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..convert.arguments import Size, format_bytes
from ..convert.certificate.layer import NO_USE, is_useful
from ..convert.errors import CheckpointError, OptionError, Problem
from ..convert.files.folder import save_converted
from ..convert.files.open import Network, open_network, placed
from ..convert.files.readers import Kind, sniff
from ..convert.files.report import CertifiedReport, certify_report
from ..convert.files.weights import Opening
from ..convert.network.convert import convert_model, name_filter, plan_conversion
from ..convert.network.plan import plan_layers, usual_size
from ..convert.network.report import Report
from ..convert.onnx.write import DEFAULT_FORM, WholeModel, attention_model, flaw
from ..convert.write import PAGE, PROGRAM, check_target
from ..show.text import Table, dequantised_lines, extra_lines, layer_name, non_finite_lines, note_lines, problem_lines
from .terminal import Done, progress, say


def convert_checkpoint(
    checkpoint: Path,
    out: Path,
    *,
    opening: Opening,
    device: str,
    dtype: torch.dtype | None,
    include: Sequence[str],
    exclude: Sequence[str],
    alpha: float | None,
    skip_unsupported: bool,
    input_range: tuple[float, float],
    size: Size | None,
    form: str | None,
    force: bool,
    page: bool = True,
) -> Done:
    """Converts a checkpoint, certifies it, and writes the folder. The arguments are the command's options.

    Raises:
        OptionError: A form is given, and no ONNX file is converted.
        ConversionError: The checkpoint cannot be opened or converted, or the folder cannot be written.
    """
    check_target(out, force=force, sources=[checkpoint])
    with progress("Reading", total=None):
        network = open_network(checkpoint, opening)
        cnn = network.cnn()
    say(*non_finite_lines(network.non_finite), err=True)
    cnn = placed(cnn, device=device, dtype=dtype)
    chosen = name_filter(cnn, include=include, exclude=exclude)
    model, report = convert_model(cnn, filter_fn=chosen, alpha=alpha, inplace=True, skip_unsupported=skip_unsupported)
    report = report.noted(network.notes, network.originals)
    size = None if size is None else size.along(report.layers[0].spec.axes)
    with progress("Certifying", total=len(report.layers)) as advance:
        certified = certify_report(model, report, input_range=input_range, size=size, progress=advance)
    text = None
    if page:
        from ..show.page.write import QUICK, make_page  # with what it imports, a tenth of the time without a page

        text, left_out = make_page(model, certified, title=checkpoint.name, limit=QUICK, summary=certified.summary)
        certified = certified.noted(left_out)
    told = {layer.name: layer.certificate_json() for layer in certified.layers}
    program = program_of(network, model, form=form, skip_unsupported=skip_unsupported, told=told)
    with progress("Writing", total=None):
        save_converted(
            model,
            out,
            report=certified,
            architecture=network.architecture,
            preprocessing=network.preprocessing,
            source=network.checkpoint,
            page=text,
            program=None if program is None or program.whole is None else program.write,
            force=force,
        )
    others, shown = _left_out(network, report), str(out / PAGE) if page else None
    data = {
        "folder": str(out),
        "page": shown,
        "program": None if program is None else program.to_json(),
        "left_out": others,
        "extra": list(network.checkpoint.extra),
        "dequantised": list(network.checkpoint.dequantised),
        "report": certified.to_json(),
    }
    remarks = [*dequantised_lines(network.checkpoint.dequantised), *extra_lines(network.checkpoint.extra)]
    return Done(data, conversion_shown(out, certified, program, shown, others, remarks))


def _left_out(network: Network, report: Report) -> int | None:
    """Number of tensors that belong to no converted layer, if only layers were converted; else None."""
    if not network.is_layers:
        return None
    described = network.checkpoint.convolutions
    found = [described[name] for layer in report.layers for name in layer.names if name in described]
    return len(network.checkpoint.state_dict.keys() - {key for each in found for key in (each.weight, each.bias)})


def conversion_shown(
    folder: Path,
    certified: CertifiedReport,
    program: Program | None = None,
    page: str | None = None,
    left_out: int | None = None,
    remarks: Sequence[str] = (),
) -> list[Table | str]:
    """A conversion as a table and lines.

    Args:
        folder: The folder that was written.
        certified: The conversion report with bounds.
        program: The network as an ONNX file, where one was converted.
        page: The page about the network, if it was written.
        left_out: Number of tensors of the checkpoint that are not in the folder, if only layers were converted.
        remarks: Lines about the checkpoint's tensors.
    """
    network, (low, high) = certified.network, certified.input_range
    useful = network is not None and (network.bound is None or is_useful(network.bound, network.outputs))
    lines = [
        *note_lines((layer.name, layer.note) for layer in certified.layers),
        *problem_lines("left alone", certified.skipped),
    ]
    if network is not None and useful:
        bound = network.in_words if network.bound is None else f"at most {network.in_words} apart"
        lines.append(f"Outputs of the whole network, images of {network.size} on [{low:g}, {high:g}]: {bound}")
    lines += problem_lines("without a known bound", () if network is None else network.unbounded)
    lines += [] if program is None else program.lines
    if left_out is not None:
        layers = sum(len(layer.names) for layer in certified.layers)
        is_whole = program is not None and program.whole is not None
        where = f"in {PROGRAM} alone" if is_whole else f"not in {folder}"
        others = f"{left_out} other tensor{'s are' if left_out != 1 else ' is'}"
        told = f"{layers} convolution{'s' * (layers != 1)}; {others} {where}"
        lines.append(f"Layers only: {told}. Pass --arch to convert the network.")
    lines += [*remarks, f"Wrote {folder}" + ("" if page is None else f"; open {page} to look at it")]
    return [
        certified.summary.in_words,
        _table(certified),
        *lines,
        *([] if useful or left_out is not None else [NO_USE]),
    ]


def _table(certified: CertifiedReport) -> Table:
    low, high = certified.input_range
    rows = (
        (
            ", ".join(map(layer_name, layer.names)),
            str(layer.spec),
            layer.heads,
            f"{layer.alpha:g}",
            layer.parameters_before,
            layer.parameters_after,
            layer.bound_in_words,
        )
        for layer in certified.layers
    )
    header = ("layer", "geometry", "heads", "alpha", "parameters", "attention", f"bound on [{low:g}, {high:g}]")
    return Table(header, tuple(rows))


def plan_checkpoint(
    checkpoint: Path, *, opening: Opening, include: Sequence[str], exclude: Sequence[str], size: Size | None
) -> Done:
    """Plans the conversion of a checkpoint. The arguments are the command's options.

    Raises:
        ConversionError: The checkpoint cannot be opened, or a pattern names no layer.
    """
    network = open_network(checkpoint, opening)
    say(*non_finite_lines(network.non_finite), err=True)
    cnn = network.cnn()
    found = plan_conversion(cnn, filter_fn=name_filter(cnn, include=include, exclude=exclude))
    usual = usual_size(cnn)
    size = usual if size is None else size.along(len(usual))
    layers = plan_layers(
        cnn, [names[0] for names in found.chosen], size=size, notes=network.notes, originals=network.originals
    )
    header = ("layer", "geometry", "heads", "parameters", "attention", "input", f"literal form at {size}")
    rows = tuple(
        (
            layer_name(layer.name),
            str(layer.spec),
            layer.spec.num_heads,
            layer.parameters_before,
            layer.parameters_after,
            layer.input_size or "unknown",
            "unknown" if layer.literal_bytes is None else format_bytes(layer.literal_bytes),
        )
        for layer in layers
    )
    data = {
        "size": list(size),
        "layers": [layer.to_json() for layer in layers],
        "unsupported": [vars(problem) for problem in found.unsupported],
        "skipped": [vars(problem) for problem in found.skipped],
    }
    parts: list[Table | str] = [
        *([] if layers else ["Nothing would be converted."]),
        Table(header, rows),
        *note_lines((layer.name, layer.note) for layer in layers),
        *problem_lines("cannot be converted", found.unsupported),
        *problem_lines("left alone", found.skipped),
    ]
    return Done(data, parts)


@dataclass
class Program:
    """A network as an ONNX file in which convolutions are attention."""

    source: Path  # the original file
    whole: WholeModel | None  # None if some of its nodes cannot be replaced
    left: tuple[Problem, ...]  # nodes that are left, or that cannot be replaced
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Writes the file, and has onnx's checker look at it.

        Raises:
            CheckpointError: The checker refuses it, and not the file that it is made of.
        """
        if self.whole is None:
            return
        self.whole.write(path)
        found = flaw(path)
        if found is not None and flaw(self.source) is None:
            raise CheckpointError(f"onnx's checker refuses what would be written: {found}")
        self.notes += [] if found is None else [f"onnx's checker refuses the file, and the original too: {found}"]

    @property
    def lines(self) -> list[str]:
        """Lines about it for the terminal."""
        if self.whole is None:
            return [f"No {PROGRAM} was written:", *problem_lines("cannot be replaced", self.left)]
        count = len(self.whole.layers)
        told = f"{PROGRAM} runs by itself, with attention in the form {self.whole.form} for {count} convolution nodes."
        return [told, *problem_lines("left in it", self.left), *self.notes]

    def to_json(self) -> dict[str, Any]:
        """The file as plain data."""
        return {
            "file": None if self.whole is None else PROGRAM,
            "form": None if self.whole is None else self.whole.form,
            "nodes": 0 if self.whole is None else len(self.whole.layers),
            "left": [vars(problem) for problem in self.left],
            "notes": self.notes,
        }


def program_of(
    network: Network,
    model: nn.Module,
    *,
    form: str | None,
    skip_unsupported: bool,
    told: Mapping[str, Mapping[str, object]],
) -> Program | None:
    """The program to write beside a converted network, with what is told of each layer; None for other than ONNX files.

    Raises:
        OptionError: A form is given, and it is no ONNX file.
    """
    path = network.checkpoint.path
    if network.architecture is not None or not is_onnx(path):
        if form is not None:
            raise OptionError("a form is for ONNX files, of which a whole network is written")
        return None
    named, sha256 = dict(model.named_modules(remove_duplicate=False)).get, network.checkpoint.sha256
    whole = attention_model(path, named, form=form or DEFAULT_FORM, source_sha256=sha256, remarks=told)
    is_whole = bool(whole.layers) and (skip_unsupported or not whole.refused)
    return Program(path, whole if is_whole else None, (*whole.refused, *whole.left))


def is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model, by its first bytes."""
    return path.is_file() and sniff(path) is Kind.ONNX
