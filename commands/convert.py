"""``conv2attn convert`` makes a checkpoint a folder with attention, bounds and page; ``conv2attn plan`` previews it.

Of a network in an ONNX file, the folder also has a whole ONNX file with attention (``OnnxFile``).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..convert.agreement.report import CertifiedReport, certify_report
from ..convert.arguments import Size, format_bytes
from ..convert.certificate.layer import format_bound, is_useful, number
from ..convert.certificate.network.certificate import NetworkCertificate
from ..convert.errors import CheckpointError, OptionError, Problem
from ..convert.files.folder import save_converted
from ..convert.files.open import Network, placed
from ..convert.files.opening import Opening
from ..convert.files.readers import Kind, sniff
from ..convert.network.convert import convert_model, name_filter, plan_conversion
from ..convert.network.plan import plan_layers, usual_size
from ..convert.write import PAGE, PROGRAM
from ..show.text import Table, dequantised_lines, layer_name, non_finite_lines, note_lines, problem_lines
from .opening import opened, options_to_open
from .terminal import Done, progress, say

if TYPE_CHECKING:  # what reads and writes ONNX files is imported where there is one
    from ..convert.onnx.write import WholeModel


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
) -> Conversion:
    """Converts a checkpoint, certifies it, and writes the folder. The arguments are the command's options."""
    # read the CNN
    with progress("Reading", total=None):
        network = opened(checkpoint, opening)
        cnn = network.cnn()
    say(*non_finite_lines(network.non_finite), err=True)
    cnn = placed(cnn, device=device, dtype=dtype)
    # convert the layers that are chosen, and certify them
    chosen = name_filter(cnn, include=include, exclude=exclude)
    model, report = convert_model(cnn, filter_fn=chosen, alpha=alpha, inplace=True, skip_unsupported=skip_unsupported)
    report = report.noted(network.notes, network.originals)
    size = None if size is None else size.along(report.layers[0].spec.axes)
    with progress("Certifying", total=len(report.layers)) as advance:
        certified = certify_report(model, report, input_range=input_range, size=size, progress=advance)
    # draw the page, and write all into the folder
    text = None
    if page:
        from ..show.page.write import QUICK, make_page  # with what it imports, a tenth of the time without a page

        text, left_out = make_page(model, certified, title=checkpoint.name, limit=QUICK, summary=certified.summary)
        certified = certified.noted(left_out)
    program = onnx_file_of(network, model, certified, form=form, skip_unsupported=skip_unsupported)
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
    return Conversion(out, network, certified, program, str(out / PAGE) if page else None)


@dataclass(frozen=True)
class Conversion:
    """A conversion that was written.

    Attributes:
        folder: The folder.
        network: What was converted.
        certified: The conversion report with bounds.
        program: The network as an ONNX file, where one was converted.
        page: The page about the network, if it was written.
    """

    folder: Path
    network: Network
    certified: CertifiedReport
    program: OnnxFile | None
    page: str | None

    exit_code = 0

    def to_json(self) -> dict[str, Any]:
        """The conversion as plain data."""
        return {
            "folder": str(self.folder),
            "page": self.page,
            "program": None if self.program is None else self.program.to_json(),
            "left_out": self._left_out,
            "extra": list(self.network.checkpoint.extra),
            "dequantised": list(self.network.checkpoint.dequantised),
            "next": self.next_command,
            "report": self.certified.to_json(),
        }

    def shown(self) -> list[Table | str]:
        """Counts, a table of layers, lines about the whole, and the outcome with the next command."""
        certified, checkpoint = self.certified, self.network.checkpoint
        return [
            certified.summary.counts,
            _table(certified),
            *note_lines((layer.name, layer.note) for layer in certified.layers),
            *problem_lines("left alone", certified.skipped),
            *([] if self.network.is_layers else worst_case_lines(certified.network, certified.input_range)),
            *([] if self.program is None else self.program.lines),
            *self._layers_only,
            *dequantised_lines(checkpoint.dequantised),
            f"Wrote {self.folder}" + ("" if self.page is None else f"; open {self.page} to look at it"),
            f"{self._outcome} Next: {self.next_command}",
        ]

    @property
    def _outcome(self) -> str:
        """How the network compares with its CNN, or why that is not known yet."""
        summary = self.certified.summary
        if summary.outcome or self.network.is_layers:
            return summary.outcome or "Converted."
        why = "it was not run" if summary.image is None else "it reads values, or calls other operations than the CNN"
        return f"Converted; whether its bits are the CNN's is not known, as {why}."

    @property
    def _left_out(self) -> int | None:
        """Number of tensors that belong to no converted layer, if only layers were converted; else None."""
        if not self.network.is_layers:
            return None
        described, names = self.network.checkpoint.convolutions, self._names
        found = [described[name] for name in names if name in described]
        held = self.network.checkpoint.state_dict.keys()
        return len(held - {key for each in found for key in (each.weight, each.bias)})

    @property
    def _names(self) -> list[str]:
        return [name for layer in self.certified.layers for name in layer.names]

    @property
    def _is_whole_program(self) -> bool:
        return self.program is not None and self.program.whole is not None

    @property
    def _layers_only(self) -> list[str]:
        """A line that the network around the layers is not in the folder, if so."""
        left_out, layers = self._left_out, len(self._names)
        if left_out is None:
            return []
        from ..convert.onnx.read import FOLDED

        where = f"in {PROGRAM} alone" if self._is_whole_program else f"not in {self.folder}"
        others = f"{left_out} other tensor{'s are' if left_out != 1 else ' is'}"
        counts = f"{layers} convolution{'s' * (layers != 1)}; {others} {where}"
        is_folded = any(FOLDED in (layer.note or "") for layer in self.certified.layers)  # then no architecture fits
        advice = "" if self._is_whole_program or is_folded else " Pass --arch to convert the network."
        return [f"Layers only: {counts}.{advice}"]

    @property
    def next_command(self) -> str:
        """The command that checks the folder, with the options that it needs; of layers alone, one that draws them."""
        if self._is_whole_program:
            return shlex.join(
                ["conv2attn", "verify", str(self.folder), "--original", str(self.network.checkpoint.path)]
            )
        if self.network.is_layers:
            return shlex.join(["conv2attn", "show", str(self.folder)])
        return shlex.join(["conv2attn", "verify", str(self.folder), *options_to_open(self.network)])


def worst_case_lines(found: NetworkCertificate | None, limits: tuple[float, float] | None) -> list[str]:
    """Worst case of the whole network for every image within a range, in the words of every command.

    Args:
        found: The certificate; None where none was asked for, since the network is deep.
        limits: The smallest and the largest value of an image, if that is known.
    """
    on = "" if limits is None else f" on [{_down(limits[0])}, {_down(-limits[1], -1)}]"
    if found is None or (found.bound is not None and not is_useful(found.bound, found.outputs)):
        why = "" if found is None or found.bound is None else f": {number(found.bound)} is as large as outputs can be"
        where = f" for any{'' if found is None else f' {found.size}'} image{on}{why}"
        return [f"Whole network: no useful worst case{where}; a bound for every image grows with every layer."]
    if found.bound is None:
        reasons = [f"{each.name}: {each.reason}".removeprefix(": ") for each in found.unbounded]
        first = [] if not reasons else [f"; {reasons[0]}"]
        return [f"Whole network: no finite worst case is known{''.join(first)}.", *map("  {}".format, reasons[1:])]
    where = f"any {found.size} image{on}"
    return [f"Whole network: worst case for {where}, in any order of sums: {format_bound(found.bound, found.outputs)}."]


def _down(value: float, sign: int = 1) -> str:
    """A number, times a sign, rounded down to two decimals."""
    return f"{sign * math.floor(value * 100) / 100:g}"


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
    header = (
        "layer",
        "geometry",
        "heads",
        "sharpness",
        "parameters",
        "as attention",
        f"worst case, inputs on [{low:g}, {high:g}]",
    )
    return Table(header, tuple(rows))


def plan_checkpoint(
    checkpoint: Path, *, opening: Opening, include: Sequence[str], exclude: Sequence[str], size: Size | None
) -> Done:
    """Plans the conversion of a checkpoint. The arguments are the command's options."""
    network = opened(checkpoint, opening)
    say(*non_finite_lines(network.non_finite), err=True)
    cnn = network.cnn()
    # decide, and compute shapes
    found = plan_conversion(cnn, filter_fn=name_filter(cnn, include=include, exclude=exclude))
    usual = usual_size(cnn)
    size = usual if size is None else size.along(len(usual))
    layers = plan_layers(
        cnn, [names[0] for names in found.chosen], size=size, notes=network.notes, originals=network.originals
    )
    # a table and its data
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
class OnnxFile:
    """A network as an ONNX file in which convolutions are attention."""

    source: Path  # the original file
    whole: WholeModel | None  # None if some of its nodes cannot be replaced
    left: tuple[Problem, ...]  # nodes that are left, or that cannot be replaced
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Writes the file, and has onnx's checker look at it."""
        if self.whole is None:
            return
        from ..convert.onnx.write import flaw

        self.whole.write(path)
        self.notes += self.whole.notes
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
        first = f"{PROGRAM} runs by itself, with attention in the form {self.whole.form} for {count} convolution nodes."
        return [first, *problem_lines("left in it", self.left), *self.notes]

    def to_json(self) -> dict[str, Any]:
        """The file as plain data."""
        return {
            "file": None if self.whole is None else PROGRAM,
            "form": None if self.whole is None else self.whole.form,
            "nodes": 0 if self.whole is None else len(self.whole.layers),
            "left": [vars(problem) for problem in self.left],
            "notes": self.notes,
        }


def onnx_file_of(
    network: Network, model: nn.Module, certified: CertifiedReport, *, form: str | None, skip_unsupported: bool
) -> OnnxFile | None:
    """The program to write beside a converted network, with each layer's certificate; only of ONNX files."""
    path = network.checkpoint.path
    if network.architecture is not None or not is_onnx(path):
        if form is not None:
            raise OptionError("a form is for ONNX files, of which a whole network is written")
        return None
    from ..convert.onnx.write import DEFAULT_FORM, attention_model

    named, sha256 = dict(model.named_modules(remove_duplicate=False)).get, network.checkpoint.sha256
    remarks = {layer.name: layer.certificate_json() for layer in certified.layers}
    whole = attention_model(path, named, form=form or DEFAULT_FORM, source_sha256=sha256, remarks=remarks)
    is_whole = bool(whole.layers) and (skip_unsupported or not whole.refused)
    return OnnxFile(path, whole if is_whole else None, (*whole.refused, *whole.left))


def is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model, by its first bytes."""
    return path.is_file() and sniff(path) is Kind.ONNX
