"""``conv2attn convert``: a checkpoint becomes a folder with its attention, bounds and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ...convert.certificate.network.certificate import NetworkCertificate
from ...convert.certificate.wording import NO_USE, is_useful
from ...convert.files.checkpoint import Opening
from ...convert.files.folder import save_converted
from ...convert.files.open import Network, open_network, placed
from ...convert.files.report import CertifiedReport, certify_report
from ...convert.files.write import PAGE, PROGRAM, check_target
from ...convert.model.convert import convert_model
from ...convert.model.report import Report
from ...convert.model.selection import name_filter
from ...convert.size import Size
from ..terminal.names import extra_lines, layer_name, non_finite_lines, note_lines, problem_lines
from ..terminal.output import Table, progress, say
from .page.write import QUICK, make_page
from .program import Program, program_of


@dataclass(frozen=True)
class Converted:
    """A folder that was written.

    Attributes:
        folder: Its path.
        certified: The conversion report with bounds.
        program: The network as an ONNX file, where one was converted.
        page: The page about the network, if it was written.
        left_out: Tensors of the checkpoint that are not in the folder, if only layers were converted; else None.
        extra: Keys of the checkpoint that belong to no part of the network.
    """

    folder: Path
    certified: CertifiedReport
    program: Program | None = None
    page: Path | None = None
    left_out: int | None = None
    extra: tuple[str, ...] = ()
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        program = None if self.program is None else self.program.to_json()
        return {
            "folder": str(self.folder),
            "page": None if self.page is None else str(self.page),
            "program": program,
            "left_out": self.left_out,
            "extra": list(self.extra),
            "report": self.certified.to_json(),
        }

    def shown(self) -> list[Table | str]:
        """The outcome as a table and lines."""
        network = self.certified.network
        useful = network is not None and (network.bound is None or is_useful(network.bound, network.outputs))
        return [
            self.certified.summary.in_words,
            self._table(),
            *note_lines((layer.name, layer.note) for layer in self.certified.layers),
            *problem_lines("left alone", self.certified.skipped),
            *([] if network is None or not useful else [self._whole(network)]),
            *problem_lines("without a known bound", () if network is None else network.unbounded),
            *([] if self.program is None else self.program.lines),
            *([] if self.left_out is None else [self._layers_only(self.left_out)]),
            *extra_lines(self.extra),
            f"Wrote {self.folder}" + ("" if self.page is None else f"; open {self.page} to look at it"),
            *([] if useful or self.left_out is not None else [NO_USE]),
        ]

    def _layers_only(self, others: int) -> str:
        layers = sum(len(layer.names) for layer in self.certified.layers)
        is_whole = self.program is not None and self.program.whole is not None
        where = f"in {PROGRAM} alone" if is_whole else f"not in {self.folder}"
        counts = f"{layers} convolution{'s' * (layers != 1)}; {others} other tensor{'s are' if others != 1 else ' is'}"
        return f"Layers only: {counts} {where}. Pass --arch to convert the network."

    def _table(self) -> Table:
        low, high = self.certified.input_range
        return Table(
            ("layer", "geometry", "heads", "alpha", "parameters", "attention", f"bound on [{low:g}, {high:g}]"),
            tuple(
                (
                    ", ".join(map(layer_name, layer.names)),
                    str(layer.spec),
                    layer.heads,
                    f"{layer.alpha:g}",
                    layer.parameters_before,
                    layer.parameters_after,
                    layer.bound_in_words,
                )
                for layer in self.certified.layers
            ),
        )

    def _whole(self, network: NetworkCertificate) -> str:
        low, high = self.certified.input_range
        bound = network.in_words if network.bound is None else f"at most {network.in_words} apart"
        return f"Outputs of the whole network, images of {network.size} on [{low:g}, {high:g}]: {bound}"


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
) -> Converted:
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
    return Converted(
        out, certified, program, out / PAGE if page else None, _left_out(network, report), network.checkpoint.extra
    )


def _left_out(network: Network, report: Report) -> int | None:
    """Number of tensors that belong to no converted layer, if only layers were converted; else None."""
    if not network.is_layers:
        return None
    described = network.checkpoint.convolutions
    found = [described[name] for layer in report.layers for name in layer.names if name in described]
    return len(network.checkpoint.state_dict.keys() - {key for each in found for key in (each.weight, each.bias)})
