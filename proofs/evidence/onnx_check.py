"""What was found of a network in an ONNX file, as data and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...convert.certificate.wording import told
from ...convert.errors import Problem
from ..terminal.names import layer_name, problem_lines
from ..terminal.table import Table


@dataclass(frozen=True)
class LayerCheck:
    """A layer's attention beside its convolution.

    Attributes:
        name: The layer.
        geometry: Its geometry, as text.
        difference: The largest difference between the two outputs.
        bound: What the certificate allows on this input.
        outputs: The largest absolute value of the convolution's output.
        alone: Whether it was run by itself, on random numbers.
    """

    name: str
    geometry: str
    difference: float
    bound: float
    outputs: float
    alone: bool

    @property
    def passed(self) -> bool:
        """Whether the difference is within the bound; what is NaN is not."""
        return self.difference <= self.bound


@dataclass(frozen=True)
class OnnxCheck:
    """What was found of a network.

    Attributes:
        form: How attention is written.
        layers: Each layer.
        outputs: The largest difference between the two networks' outputs, and the largest output, by name.
        left: Convolution nodes that are left.
        seed: Of the inputs.
        is_kept: Whether a file that was written before gives the very bits of one that is written now.
    """

    form: str
    layers: tuple[LayerCheck, ...]
    outputs: Mapping[str, tuple[float, float]]
    left: tuple[Problem, ...]
    seed: int | None = None
    is_kept: bool = True

    @property
    def passed(self) -> bool:
        """Whether some layer ran, and every one stayed within its bound, and all outputs have one shape and no NaN."""
        finite = all(difference < float("inf") for difference, _ in self.outputs.values())
        return bool(self.layers) and finite and self.is_kept and all(layer.passed for layer in self.layers)

    @property
    def exit_code(self) -> int:
        """0 if the check passed."""
        return 0 if self.passed else 1

    def to_json(self) -> dict[str, Any]:
        """The check as plain data."""
        return {
            "form": self.form,
            "seed": self.seed,
            "kept": self.is_kept,
            "layers": [asdict(layer) for layer in self.layers],
            "outputs": {name: {"difference": d, "largest": size} for name, (d, size) in self.outputs.items()},
            "left": [vars(problem) for problem in self.left],
        }

    def shown(self) -> list[Table | str]:
        """The check as tables and lines."""
        beyond = [layer.name for layer in self.layers if not layer.passed]
        alone = sum(layer.alone for layer in self.layers)
        verdict = f"Beyond the bound, or not finite: {', '.join(beyond)}." if beyond else self._within
        return [
            self._table(),
            *problem_lines("left as they are", self.left),
            verdict,
            *([] if self.is_kept else ["The folder's file does not give what its layers, written anew, give."]),
            *([f"{alone} of them lie within other nodes, and were run by themselves."] if alone else []),
            *(
                f"Output {name}: {difference:.1e} apart; the largest is {size:.2g}."
                for name, (difference, size) in self.outputs.items()
            ),
            *([] if self.seed is None else [f"Seed: {self.seed}"]),
        ]

    @property
    def _within(self) -> str:
        if not self.layers:
            return "No attention layer ran: nothing is verified."
        return f"All {len(self.layers)} layers are within their bounds, in the form {self.form}, run by ONNX Runtime."

    def _table(self) -> Table:
        return Table(
            ("layer", "geometry", f"{self.form}: difference / bound"),
            tuple(
                (
                    layer_name(layer.name),
                    layer.geometry,
                    f"{layer.difference:.1e} / {told(layer.bound, layer.outputs, form='.1e')}",
                )
                for layer in self.layers
            ),
        )
