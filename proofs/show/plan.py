"""``conv2attn plan``: the plan of a conversion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...convert.errors import Problem
from ...convert.files.checkpoint import Opening
from ...convert.files.open import open_network
from ...convert.model.convert import plan_conversion
from ...convert.model.plan import LayerPlan, plan_layers, usual_size
from ...convert.model.selection import name_filter
from ...convert.size import Size, format_bytes
from ..terminal.names import layer_name, non_finite_lines, note_lines, problem_lines
from ..terminal.output import say
from ..terminal.table import Table

_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Planned:
    """Plan of a conversion, for each convolution.

    Attributes:
        size: Image size that sizes and memory are for.
        layers: Layers that would be converted.
        unsupported: Layers that cannot be converted, with the reasons.
        skipped: Layers that are not selected.
    """

    size: Size
    layers: tuple[LayerPlan, ...]
    unsupported: tuple[Problem, ...]
    skipped: tuple[Problem, ...]
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "size": list(self.size),
            "layers": [layer.to_json() for layer in self.layers],
            "unsupported": [vars(problem) for problem in self.unsupported],
            "skipped": [vars(problem) for problem in self.skipped],
        }

    def shown(self) -> list[Table | str]:
        """The plan as a table and lines."""
        return [
            *([] if self.layers else ["Nothing would be converted."]),
            self._table(),
            *note_lines((layer.name, layer.note) for layer in self.layers),
            *problem_lines("cannot be converted", self.unsupported),
            *problem_lines("left alone", self.skipped),
        ]

    def _table(self) -> Table:
        return Table(
            ("layer", "geometry", "heads", "parameters", "attention", "input", f"literal form at {self.size}"),
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
                for layer in self.layers
            ),
        )


def plan_checkpoint(
    checkpoint: Path,
    *,
    opening: Opening,
    include: Sequence[str],
    exclude: Sequence[str],
    size: Size | None,
) -> Planned:
    """Plans the conversion of a checkpoint.

    Args:
        checkpoint: Whatever ``open_network`` opens.
        opening: Options for opening it.
        include: Name patterns of the layers to convert; none means all.
        exclude: Name patterns of the layers to leave alone.
        size: Image size that sizes and memory are for; None for the usual one.

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
    return Planned(size, tuple(layers), found.unsupported, found.skipped)
