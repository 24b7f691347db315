"""``conv2attn freeze``: trained attention becomes convolutions again, in a program that PyTorch alone runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ...convert.attention.layer import SelfAttention
from ...convert.certificate.layer import InputRange
from ...convert.errors import ConversionError, OutputError, first_line
from ...convert.files.open import Opening
from ...convert.files.tensors import write_stream
from ...convert.files.write import check_distinct, check_file, write_file
from ...convert.inputs import example_image
from ...convert.size import USUAL_SIZES, Size
from ...learn.freezing.freeze import FrozenModel, freeze, freeze_layer, unfrozen
from ...learn.melting.melt import attention_layers
from ..terminal.names import layer_name
from ..terminal.table import Table

ENDING = ".pt2"
PLOTS = ".png", ".svg", ".pdf"
TOLERANCES = tuple(10.0**power for power in (1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5, -4.0))


@dataclass(frozen=True)
class Frozen:
    """A program that was written.

    Attributes:
        file: Its path.
        tolerance: What each layer is within, away from borders.
        input_range: What bounds are for.
        frozen: The network and its layers.
    """

    file: Path
    tolerance: float
    input_range: tuple[float, float]
    frozen: FrozenModel
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        layers = [{"names": list(each.names), **asdict(each.certificate)} for each in self.frozen.layers]
        return {"file": str(self.file), "tolerance": self.tolerance, "range": list(self.input_range), "layers": layers}

    def shown(self) -> list[Table | str]:
        """The outcome as a table and lines."""
        low, high = self.input_range
        rows = tuple(
            (
                ", ".join(map(layer_name, each.names)),
                str(Size(*each.certificate.kernel_size)),
                f"{each.certificate.cut_off:.3g}",
                f"{each.certificate.border:.3g}",
            )
            for each in self.frozen.layers
        )
        return [
            Table(("layer", "kernel", "cut-off", "with borders"), rows),
            f"Bounds on how far a layer's outputs are from its attention's, in exact arithmetic, for its inputs on "
            f"[{low:g}, {high:g}]: away from borders, and anywhere",
            f"Wrote {self.file}: torch.export.load({str(self.file)!r}).module() computes it",
        ]


def freeze_checkpoint(
    checkpoint: Path,
    out: Path,
    *,
    opening: Opening,
    tolerance: float,
    input_range: tuple[float, float],
    size: Size | None,
    plot: Path | None,
    force: bool,
) -> Frozen:
    """Freezes a network and writes it.

    Args:
        checkpoint: What ``conv2attn melt`` or convert wrote, or the state dict of a network that was trained further.
        out: The file, which ends in .pt2.
        opening: How it is opened.
        tolerance: Of each layer, away from borders.
        input_range: Of each layer's input.
        size: Image size of the program, through which any number of images goes; None means what the network was
            trained on, or the usual one.
        plot: Where to draw kernel size against tolerance.
        force: Replace files that exist.

    Raises:
        ConversionError: The network cannot be opened or frozen, or a file cannot be written.
    """
    if out.suffix != ENDING:
        raise OutputError(f"{out} must end in {ENDING}: a program of torch.export's")
    if plot is not None and plot.suffix not in PLOTS:
        raise OutputError(f"{plot} cannot be written: the name must end in {', '.join(PLOTS)}")
    files = [out] if plot is None else [out, plot]
    check_distinct(files)
    for file in files:
        check_file(file, force=force, sources=[checkpoint])
    network = opening.open(checkpoint)
    sources = [checkpoint, *network.files]
    for file in files:
        check_file(file, force=force, sources=sources)
    model = network.whole().as_saved()
    frozen = freeze(model, tolerance, input_range=input_range)
    known = None if network.preprocessing is None else network.preprocessing.size
    program = _program(frozen.model, size or known or USUAL_SIZES[2])
    if plot is not None:
        drawn = _plot(model, input_range, plot.suffix[1:])
        write_file(plot, lambda path: path.write_bytes(drawn), force=force, sources=sources)
    write_file(out, partial(write_stream, partial(torch.export.save, program)), force=force, sources=sources)
    return Frozen(out, tolerance, input_range, frozen)


def _program(model: nn.Module, size: Size) -> torch.export.ExportedProgram:
    images = example_image(model.eval(), size, batch=2)
    try:
        with torch.no_grad():
            return torch.export.export(
                model.cpu().eval(), (images,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
            )
    except Exception as error:  # torch.export raises many things for code that it cannot follow
        raise ConversionError(
            f"torch.export cannot follow the network on images {list(images.shape)}: {first_line(error)}"
        ) from error


def kernel_sizes(
    layer: SelfAttention, tolerances: Sequence[float], input_range: InputRange
) -> list[tuple[float, float]]:
    """The side of a frozen kernel for each tolerance that one meets: the geometric mean over the axes."""
    found = []
    for tolerance in tolerances:
        try:
            size = freeze_layer(layer, tolerance, input_range=input_range).certificate.kernel_size
        except ConversionError:  # a smaller one is not met either
            break
        found.append((tolerance, math.prod(size) ** (1 / len(size))))
    return found


def _plot(model: nn.Module, input_range: tuple[float, float], form: str) -> bytes:
    from .pictures.style import drawn_in_style

    with drawn_in_style():
        content: bytes = _sheet(model, input_range).save(form)
    return content


def _sheet(model: nn.Module, input_range: tuple[float, float]) -> Any:
    from .pictures.style import FAINT, GREY, HEAD_COLOURS, Sheet

    low, high = input_range
    sheet = Sheet(
        6.4,
        3.4,
        title="Kernel size against tolerance",
        caption="Side of the smallest convolution whose outputs are, away from borders, within the tolerance of the "
        f"layer's attention, for inputs on [{low:g}, {high:g}], in the units of its outputs; of a kernel that is not "
        "square, the geometric mean. A line for each layer.",
    )
    axes = sheet.axes(0.6, 0.1, 4.0, 2.8)
    axes.set(xscale="log", xlabel="tolerance", ylabel="kernel side, pixels")
    axes.set_prop_cycle(color=HEAD_COLOURS)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    layers = [(name, layer) for name, layer in attention_layers(model) if unfrozen(layer) is None]
    for name, layer in layers:
        points = kernel_sizes(layer, TOLERANCES, input_range)
        axes.plot(
            [tolerance for tolerance, _ in points],
            [side for _, side in points],
            marker="o",
            markersize=2.5,
            linewidth=1.1,
            label=layer_name(name),
        )
    axes.invert_xaxis()
    axes.grid(color=FAINT, linewidth=0.4)
    axes.tick_params(colors=GREY)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize=6, frameon=False)
    return sheet
