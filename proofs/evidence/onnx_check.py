"""The check of a network in an ONNX file, as data and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...convert.certificate.comparison import LayerComparison
from ...convert.errors import Problem
from ..terminal.names import problem_lines
from ..terminal.output import Table
from .agreement import LayerShape
from .tables import NOTHING_RAN, beyond_line, layer_table


@dataclass(frozen=True)
class OnnxCheck:
    """The check of a network in an ONNX file.

    Attributes:
        form: Form of the attention.
        layers: Each layer, beside its convolution on the same input.
        alone: Names of the layers that lie within other nodes, and were run by themselves on random numbers.
        shapes: The layers, by name.
        outputs: The largest difference between the two networks' outputs, and the largest output, by name.
        left: Convolution nodes that are left.
        seed: Seed of the inputs.
        is_kept: Whether the existing file gives exactly the same bits as one that is written now.
    """

    form: str
    layers: tuple[LayerComparison, ...]
    alone: tuple[str, ...]
    shapes: Mapping[str, LayerShape]
    outputs: Mapping[str, tuple[float, float]]
    left: tuple[Problem, ...]
    seed: int
    is_kept: bool = True

    @property
    def passed(self) -> bool:
        """Whether some layer ran, and every one stayed within its bound, and all outputs have one shape and no NaN."""
        finite = all(difference < float("inf") for difference, _ in self.outputs.values())
        return bool(self.layers) and finite and self.is_kept and not self._beyond

    @property
    def _beyond(self) -> list[str]:
        return [layer.name for layer in self.layers if not layer.own <= layer.bound]

    @property
    def exit_code(self) -> int:
        """0 if the check passed."""
        return int(not self.passed)

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
