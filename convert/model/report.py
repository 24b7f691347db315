"""Conversion report, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Self

from torch import nn

from ..attention.layer import SelfAttention
from ..errors import Problem
from ..names import names_by_module
from ..spec import ConvSpec


@dataclass(frozen=True)
class LayerRecord:
    """Description of a convolution that is or would be converted.

    Attributes:
        names: Fully qualified names of the layer; more than one if the model shares it.
        spec: Its geometry.
        parameters_before: Numbers in the convolution.
        parameters_after: Numbers in the attention layer.
        note: A remark on its weights for the user, or None.
        original: The layer's name in the source file, or None if it is the same.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    parameters_before: int
    parameters_after: int
    note: str | None = field(default=None, kw_only=True)
    original: str | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.spec.num_heads

    def noted(self, note: str | None) -> Self:
        """The same record with one more note."""
        if note is None or note in (self.note or ""):
            return self
        return replace(self, note=note if self.note is None else f"{self.note}; {note}")

    def to_json(self) -> dict[str, Any]:
        """The layer as plain data."""
        return vars(self) | {"names": list(self.names), "spec": self.spec.to_json(), "heads": self.heads}


@dataclass(frozen=True)
class LayerReport(LayerRecord):
    """One converted layer.

    Attributes:
        alpha: Locality strength of the heads.
        engine: Its engine.
    """

    alpha: float
    engine: str

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention) -> LayerReport:
        """Describes a layer that was just converted; its numbers of positions count as parameters."""
        resting = 0 if layer.trains_positions else layer.num_heads * (layer.spec.axes + 1)
        return cls(
            names=names,
            spec=layer.spec,
            parameters_before=sum(p.numel() for name, p in layer.named_parameters() if not _is_positional(name)),
            parameters_after=sum(parameter.numel() for parameter in layer.parameters()) + resting,
            alpha=layer.regime.alpha[0],
            engine=layer.engine,
        )


@dataclass(frozen=True)
class Report:
    """Conversion report: the outcome for each convolution of a model.

    Attributes:
        layers: The converted layers, in the model's order.
        skipped: The convolutions left as they were, each with its reason.
    """

    layers: tuple[LayerReport, ...]
    skipped: tuple[Problem, ...]

    @classmethod
    def of(cls, model: nn.Module) -> Report:
        """Describes the attention layers of a model as they are now."""
        groups = names_by_module(model, lambda module: isinstance(module, SelfAttention))
        layers = ((names, model.get_submodule(names[0])) for names in groups)
        return cls(tuple(LayerReport.of(n, layer) for n, layer in layers if isinstance(layer, SelfAttention)), ())

    def noted(self, notes: Mapping[str, str], originals: Mapping[str, str] | None = None) -> Report:
        """The same report with further notes and original names.

        Args:
            notes: Remarks on layers, by name.
            originals: Names in the source file, by name.
        """
        layers = (layer.noted(notes.get(layer.name)) for layer in self.layers)
        if originals is not None:
            layers = (replace(layer, original=originals.get(layer.name)) for layer in layers)
        return replace(self, layers=tuple(layers))

    def __str__(self) -> str:
        """A table of the layers, for a terminal."""
        rows = [_HEADER, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self._title(), "", *lines, *(f"{each.name}: left, {each.reason}" for each in self.skipped)])

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        head = "".join(f"<th>{cell}</th>" for cell in _HEADER)
        return f"<p>{self._title()}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _title(self) -> str:
        heads = sum(layer.heads for layer in self.layers)
        return f"{len(self.layers):,} layers, {heads:,} heads"

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (layer.name or "the model", str(layer.spec), f"{layer.heads}", f"{layer.alpha:g}", layer.engine)
            for layer in self.layers
        ]


_HEADER = "layer", "convolution", "heads", "alpha", "engine"


def _is_positional(name: str) -> bool:
    """Whether a parameter of an attention layer is missing in its convolution."""
    return name.partition(".")[0] in ("log_alpha", "centers", "content", "axis_scores")
