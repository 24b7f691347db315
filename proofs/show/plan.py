"""``conv2attn plan``: the plan of a conversion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...convert.files.checkpoint import Opening
from ...convert.files.open import open_network
from ...convert.model.convert import plan_conversion
from ...convert.model.plan import LayerPlan, plan_layers, usual_size
from ...convert.model.selection import name_filter
from ...convert.size import Size, format_bytes
from ..terminal.names import layer_name, non_finite_lines, note_lines, problem_lines
from ..terminal.outcome import Done
from ..terminal.output import Table, say

_UNKNOWN = "unknown"


def plan_checkpoint(
    checkpoint: Path,
    *,
    opening: Opening,
    include: Sequence[str],
    exclude: Sequence[str],
    size: Size | None,
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
    data = {
        "size": list(size),
        "layers": [layer.to_json() for layer in layers],
        "unsupported": [vars(problem) for problem in found.unsupported],
        "skipped": [vars(problem) for problem in found.skipped],
    }
    parts: list[Table | str] = [
        *([] if layers else ["Nothing would be converted."]),
        _table(layers, size),
        *note_lines((layer.name, layer.note) for layer in layers),
        *problem_lines("cannot be converted", found.unsupported),
        *problem_lines("left alone", found.skipped),
    ]
    return Done(data, parts)


def _table(layers: Sequence[LayerPlan], size: Size) -> Table:
    """A row for each layer."""
    return Table(
        ("layer", "geometry", "heads", "parameters", "attention", "input", f"literal form at {size}"),
        tuple(
            (
                layer_name(layer.name),
                str(layer.spec),
                layer.spec.num_heads,
                layer.parameters_before,
                layer.parameters_after,
                layer.input_size or _UNKNOWN,
                _UNKNOWN if layer.literal_bytes is None else format_bytes(layer.literal_bytes),
            )
            for layer in layers
        ),
    )
