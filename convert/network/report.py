"""Conversion report, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, Self

from torch import nn

from ..certificate.layer import Certificate
from ..engines import AUTO
from ..errors import Problem
from ..heads.values import OWN_NAMES
from ..layer.layer import SelfAttention
from ..layer.of_subclass import OfSubclass
from ..layer.spare import SpareHeads
from ..spec import CONVOLUTIONS, ConvSpec
from ..subclasses.computed import is_computed
from .modules import modules_of
from .plan import PASSED_BY

REPORT_VERSION = 1
UNKNOWN = "No example was given, so it is unknown whether the network runs each layer."
_HEADER = "layer", "convolution", "heads", "alpha", "engine"


@dataclass(frozen=True)
class LayerRecord:
    """Description of an attention layer, without what its tensors tell: an entry of ``config.json``.

    Attributes:
        names: Fully qualified names of the layer; more than one if the model shares it.
        spec: Its geometry.
        engine: Its engine.
        alpha_follows_dtype: As ``SelfAttention.alpha_follows_dtype``.
        kind: The convolution's class where it is not a plain one of PyTorch's, so that only the architecture makes it.
        spare: Its spare heads, or None.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    engine: str = AUTO
    alpha_follows_dtype: bool = True
    kind: str | None = None
    spare: SpareHeads | None = None

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention) -> Self:
        """Describes a layer."""
        return cls(names, layer.spec, layer.engine, layer.alpha_follows_dtype, kind_of(layer), layer.spare)

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.spec.num_heads

    def to_json(self) -> dict[str, Any]:
        """The record as plain data, which ``plain.from_plain`` reads."""
        spare = None if self.spare is None else vars(self.spare)
        return vars(self) | {"names": list(self.names), "spec": self.spec.to_json(), "spare": spare}


@dataclass(frozen=True, kw_only=True)
class LayerReport(LayerRecord):
    """One converted layer, with what its tensors tell and, in a certified report, its certificate.

    Attributes:
        parameters_before: Numbers in the convolution.
        parameters_after: Numbers in the attention layer.
        alpha: Sharpness of the heads.
        note: A remark on its weights for the user, or None.
        original: The layer's name in the source file, or None if it is the same.
        certificate: Bound on the difference from the convolution for inputs within a range, or None.
        uncertified: Why there is no certificate, or None.
        dtype: Precision of the layer's weights, or None without a certificate.
    """

    parameters_before: int
    parameters_after: int
    alpha: float
    note: str | None = None
    original: str | None = None
    certificate: Certificate | None = None
    uncertified: str | None = None
    dtype: str | None = None

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention) -> Self:
        """Describes a layer as it is now; its numbers of positions count as parameters."""
        resting = 0 if layer.trains_positions else layer.num_heads * (layer.spec.axes + 1)
        return cls(
            **vars(LayerRecord.of(names, layer)),
            parameters_before=sum(
                p.numel() for name, p in layer.named_parameters() if name.partition(".")[0] not in OWN_NAMES
            ),
            parameters_after=sum(parameter.numel() for parameter in layer.parameters()) + resting,
            alpha=layer.regime.alpha[0],
        )

    def noted(self, note: str | None) -> Self:
        """The same record with one more note."""
        if note is None or note in (self.note or ""):
            return self
        return replace(self, note=note if self.note is None else f"{self.note}; {note}")

    @property
    def bound_in_words(self) -> str:
        """The certified bound, or why there is none."""
        return str(self.uncertified) if self.certificate is None else self.certificate.in_words

    def certificate_json(self) -> dict[str, Any]:
        """The certificate as ``conv2attn check`` reads it; floats are written exactly."""
        certificate = None if self.certificate is None else self.certificate.to_json()
        return {"certificate": certificate, "uncertified": self.uncertified, "dtype": self.dtype}

    def to_json(self) -> dict[str, Any]:
        """The layer as plain data."""
        return super().to_json() | {"heads": self.heads} | self.certificate_json()


@dataclass(frozen=True)
class Report:
    """Conversion report: the outcome for each convolution of a model.

    Attributes:
        layers: The converted layers, in the model's order.
        skipped: The convolutions left as they were, each with its reason.
        idle: The converted layers that did not run on an example, each with its reason, or a single problem without a
            name if the network does not run on it; None if there was no example.
    """

    layers: tuple[LayerReport, ...]
    skipped: tuple[Problem, ...]
    idle: tuple[Problem, ...] | None = None

    @staticmethod
    def of(model: nn.Module) -> Report:
        """Describes the attention layers of a model as they are now."""
        layers = modules_of(model, SelfAttention).items()
        return Report(tuple(LayerReport.of(names, layer) for names, layer in layers), ())

    def noted(self, notes: Mapping[str, str], originals: Mapping[str, str] | None = None) -> Self:
        """The same report with further remarks on layers and, where given, their names in the source file, by name."""
        layers = (layer.noted(notes.get(layer.name)) for layer in self.layers)
        if originals is not None:
            layers = (replace(layer, original=originals.get(layer.name)) for layer in layers)
        return replace(self, layers=tuple(layers))

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with the version of its form; None where ``certify_report`` knows more."""
        return {
            "version": REPORT_VERSION,
            "attention": None,
            "certified_range": None,
            "layers": [layer.to_json() | {"literal": None} for layer in self.layers],
            "network": None,
            "comparison": None,
            "skipped": [asdict(problem) for problem in self.skipped],
        }

    def __str__(self) -> str:
        """A table of the layers, for a terminal."""
        rows = [_HEADER, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        left = (f"{each.name}: left, {each.reason}" for each in self.skipped)
        idle = [f"{each.name or 'the model'} {each.reason}" for each in self.idle or ()]
        unknown = [UNKNOWN] if self.idle is None else []
        return "\n".join([self._title(), "", *lines, *left, *idle, *unknown])

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        head = "".join(f"<th>{cell}</th>" for cell in _HEADER)
        return f"<p>{self._title()}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _title(self) -> str:
        passed_by = {each.name for each in self.idle or () if each.reason == PASSED_BY}
        counted = [layer for layer in self.layers if layer.name not in passed_by]
        of_all = f" of {len(self.layers):,}" if passed_by else ""
        return f"{len(counted):,}{of_all} layers, {sum(layer.heads for layer in counted):,} heads"

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (layer.name or "the model", str(layer.spec), f"{layer.heads}", f"{layer.alpha:g}", layer.engine)
            for layer in self.layers
        ]


def kind_of(layer: SelfAttention) -> str | None:
    """The convolution's class where it was not a plain one of PyTorch's, or None."""
    if isinstance(layer, OfSubclass):
        return layer.origin.name
    spec = layer.spec
    return f"parametrised {CONVOLUTIONS[spec.axes, spec.transposed].__name__}" if is_computed(layer) else None
