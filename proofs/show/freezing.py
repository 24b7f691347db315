"""``conv2attn freeze``: turns trained attention back into convolutions, in a program that needs only PyTorch."""

from __future__ import annotations

import inspect
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...convert.attention.layer import SelfAttention
from ...convert.certificate.layer import InputRange
from ...convert.errors import ConversionError, OutputError, untraceable
from ...convert.files.checkpoint import Opening
from ...convert.files.open import open_network
from ...convert.files.tensors import write_stream
from ...convert.files.write import check_distinct, check_file, write_file
from ...convert.inputs import example_image
from ...convert.size import USUAL_SIZES, Size
from ...learn.data.kinds import load_data
from ...learn.freezing.freeze import FrozenModel, freeze, freeze_layer, unfrozen
from ...learn.freezing.same import SameConv
from ...learn.melting.melt import attention_layers
from ...learn.training.evaluate import accuracy
from ..terminal.names import layer_name
from ..terminal.outcome import Done
from ..terminal.output import Table

ENDING, WEIGHTS, MODULE = ".pt2", ".pth", ".py"
PLOTS = ".png", ".svg", ".pdf"
TOLERANCES = tuple(10.0**power for power in (1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5, -4.0))
_SAME = "span", "odd_first"
_MORE = ("output_padding", *_SAME)
_OPTIONS = "in_channels", "out_channels", "kernel_size", "stride", "padding", "groups", "padding_mode"
_TEMPLATE = '''"""The convolutions of {weights}, for the CNN that they were melted from; conv2attn freeze wrote this."""

from pathlib import Path

import torch
from torch import nn
{classes}
CONVOLUTIONS = {{
{layers}
}}


def freeze(cnn: nn.Module) -> nn.Module:
    """Puts the convolutions into a CNN, in place, and loads the weights."""
    for name, (kind, options) in CONVOLUTIONS.items():
        conv = kind(**options)
        if not name:
            cnn = conv
        else:
            parent, _, own = name.rpartition(".")
            setattr(cnn.get_submodule(parent), own, conv)
    cnn.load_state_dict(torch.load(Path(__file__).with_name({weights!r}), weights_only=True))
    return cnn.eval()
'''


def freeze_checkpoint(
    checkpoint: Path,
    out: Path,
    *,
    opening: Opening,
    tolerance: float,
    input_range: tuple[float, float],
    size: Size | None,
    data: str | None,
    plot: Path | None,
    force: bool,
) -> Done:
    """Freezes a network and writes it. The arguments are the command's options.

    Raises:
        ConversionError: The network cannot be opened or frozen, or a file cannot be written.
    """
    if out.suffix != ENDING:
        raise OutputError(f"{out} must end in {ENDING}: a program of torch.export's")
    if plot is not None and plot.suffix not in PLOTS:
        raise OutputError(f"{plot} cannot be written: the name must end in {', '.join(PLOTS)}")
    weights, module = out.with_suffix(WEIGHTS), out.with_suffix(MODULE)
    files = [out, weights, module, *([] if plot is None else [plot])]
    check_distinct(files)
    for file in files:
        check_file(file, force=force, sources=[checkpoint])
    network = open_network(checkpoint, opening)
    sources = [checkpoint, *network.files]
    for file in files:
        check_file(file, force=force, sources=sources)
    model = network.whole().as_saved()
    known, images = network.preprocessing, None
    if data is not None:
        scaled = size if data.startswith("folder:") else None  # images of other kinds have their size
        channels = None if known is None else known.channels
        images = load_data(data, channels=channels, size=scaled, preprocessing=known)
    frozen = freeze(model, tolerance, input_range=input_range)
    program = _program(frozen.model, size or (known and known.size) or USUAL_SIZES[2])
    if plot is not None:
        from .pictures.style import drawn_in_style

        with drawn_in_style():
            drawn: bytes = _sheet(model, input_range).save(plot.suffix[1:])
        write_file(plot, lambda path: path.write_bytes(drawn), force=force, sources=sources)
    write_file(out, partial(write_stream, partial(torch.export.save, program)), force=force, sources=sources)
    state = frozen.model.state_dict()
    write_file(weights, partial(write_stream, partial(torch.save, state)), force=force, sources=sources)
    text = _module(frozen, weights)
    write_file(module, lambda path: path.write_text(text, "utf-8"), force=force, sources=sources)
    found = {
        "file": str(out),
        "tolerance": tolerance,
        "range": list(input_range),
        "layers": [{"names": list(each.names), **asdict(each.certificate)} for each in frozen.layers],
    }
    told = _shown(out, frozen, input_range)
    if images is not None:
        before, after = accuracy(model, images.test), accuracy(frozen.model, images.test)
        found["accuracy"] = [before, after]
        told.insert(-1, f"Test accuracy: {before:.1%} as attention, {after:.1%} frozen")
    return Done(found, told)


def _shown(out: Path, frozen: FrozenModel, input_range: tuple[float, float]) -> list[Table | str]:
    """A row for each layer, and what was written."""
    low, high = input_range
    rows = tuple(
        (
            ", ".join(map(layer_name, each.names)),
            str(Size(*each.certificate.kernel_size)),
            f"{each.certificate.cut_off:.3g}",
            f"{each.certificate.border:.3g}",
        )
        for each in frozen.layers
    )
    return [
        Table(("layer", "kernel", "cut-off", "with borders"), rows),
        f"Bounds on how far a layer's outputs are from its attention's, in exact arithmetic, for its inputs on "
        f"[{low:g}, {high:g}]: away from borders, and anywhere",
        f"Wrote {out}: torch.export.load({str(out)!r}).module() computes it; {out.with_suffix(WEIGHTS).name} has its "
        f"weights, and freeze() of {out.with_suffix(MODULE).name} puts its convolutions into the CNN that was melted",
    ]


def _module(frozen: FrozenModel, weights: Path) -> str:
    """Python that needs PyTorch alone: puts the frozen convolutions into the CNN, and loads the weights."""
    lines, own = [], set[type]()
    for layer in frozen.layers:
        conv = layer.convolution
        kind = type(conv).__name__
        names = [*_OPTIONS, *(name for name in _MORE if name in vars(conv) and (name in _SAME or conv.transposed))]
        options = {name: getattr(conv, name) for name in names} | {"bias": conv.bias is not None}
        if isinstance(conv, SameConv):
            own.add(type(conv))
        else:
            kind = f"nn.{kind}"
        lines += [f"    {name!r}: ({kind}, {options!r})," for name in layer.names]
    classes = ""
    if own:  # convolutions that pad by their input's size: with their source
        kinds = SameConv, *sorted(own, key=lambda kind: kind.__name__)
        header = "import torch.nn.functional as F\nfrom torch import Tensor\nfrom typing import Any\n"
        classes = "\n".join([header, *map(inspect.getsource, kinds)])
    return _TEMPLATE.format(weights=weights.name, layers="\n".join(lines), classes=classes)


def _program(model: nn.Module, size: Size) -> torch.export.ExportedProgram:
    images = example_image(model.eval(), size, batch=2)
    try:
        with torch.no_grad():
            return torch.export.export(
                model.cpu().eval(), (images,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
            )
    except Exception as error:  # torch.export raises many things for code that it cannot follow
        raise ConversionError(
            f"torch.export cannot follow the network on images {list(images.shape)}: {untraceable(error)}"
        ) from error


def kernel_sizes(layer: SelfAttention, input_range: InputRange) -> dict[float, float]:
    """The side of a frozen kernel for each tolerance that one meets: the geometric mean over the axes."""
    found = {}
    for tolerance in TOLERANCES:
        try:
            size = freeze_layer(layer, tolerance, input_range=input_range).certificate.kernel_size
        except ConversionError:  # a smaller one is not met either
            break
        found[tolerance] = math.prod(size) ** (1 / len(size))
    return found


def _sheet(model: nn.Module, input_range: tuple[float, float]) -> Any:
    """The plot of kernel size against tolerance, a line for each layer."""
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
    for name, layer in attention_layers(model):
        if unfrozen(layer) is None:
            points = kernel_sizes(layer, input_range)
            style = {"marker": "o", "markersize": 2.5, "linewidth": 1.1}
            axes.plot(list(points), list(points.values()), label=layer_name(name), **style)
    axes.invert_xaxis()
    axes.grid(color=FAINT, linewidth=0.4)
    axes.tick_params(colors=GREY)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize=6, frameon=False)
    return sheet
