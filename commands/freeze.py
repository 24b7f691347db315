"""``conv2attn freeze``: turns trained attention back into convolutions, as a program or as weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ..convert.arguments import USUAL_SIZES, Size
from ..convert.errors import ConversionError, untraceable
from ..convert.files.opening import Opening
from ..convert.files.preprocessing import caveats
from ..convert.files.state import complete_state, independent_tensors
from ..convert.inputs import example_image
from ..convert.tensors import copies, write_safetensors, write_stream
from ..convert.write import check_file, write_file
from ..learn.data.datasets import load_data
from ..learn.freezing import FrozenModel, freeze
from ..learn.training.recipe import accuracy
from ..show.text import Table, layer_name
from .opening import opened
from .terminal import Done, say

PROGRAM, SAFETENSORS = ".pt2", ".safetensors"
ENDINGS = (PROGRAM, ".pth", ".pt", SAFETENSORS)


def freeze_checkpoint(
    checkpoint: Path,
    out: Path,
    *,
    opening: Opening,
    tolerance: float,
    input_range: tuple[float, float],
    size: Size | None,
    data: str | None,
    force: bool,
) -> Done:
    """Freezes a network and writes it. The arguments are the command's options."""
    network = opened(checkpoint, opening)
    sources = [checkpoint, *network.files]
    check_file(out, force=force, sources=sources)
    model = network.whole().as_saved()
    # the data to test on
    known, images = network.preprocessing, None
    if data is not None:
        scaled = size if data.startswith("folder:") else None  # images of other kinds have their size
        channels = None if known is None else known.channels
        say(*caveats(known), err=True)
        images = load_data(data, channels=channels, size=scaled, preprocessing=known)
    # freeze, write, and test before and after
    frozen = freeze(model, tolerance, input_range=input_range)
    write_file(
        out,
        _writer(frozen.model, out.suffix, size or (None if known is None else known.size)),
        force=force,
        sources=sources,
    )
    found = {
        "file": str(out),
        "tolerance": tolerance,
        "range": list(input_range),
        "layers": [{"names": list(each.names), **asdict(each.certificate)} for each in frozen.layers],
    }
    shown = _shown(out, frozen, input_range)
    if images is not None:
        before, after = accuracy(model, images.test), accuracy(frozen.model, images.test)
        found["accuracy"] = [before, after]
        shown.insert(-1, f"Test accuracy: {before:.1%} as attention, {after:.1%} frozen")
    return Done(found, shown)


def _shown(out: Path, frozen: FrozenModel, input_range: tuple[float, float]) -> list[Table | str]:
    low, high = input_range
    content = (
        f": torch.export.load({str(out)!r}).module() computes it" if out.suffix == PROGRAM else ", the frozen weights"
    )
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
        f"Wrote {out}{content}",
    ]


def _writer(model: nn.Module, suffix: str, size: Size | None) -> Callable[[Path], None]:
    if suffix == PROGRAM:
        program = _program(model, size or USUAL_SIZES[2])
        return partial(write_stream, partial(torch.export.save, program))
    state = complete_state(model)
    if suffix == SAFETENSORS:
        return partial(write_safetensors, independent_tensors(state), metadata={})
    return partial(write_stream, partial(torch.save, copies(state)))


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
