"""Plans, conversions and networks side by side, as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...convert.certificate.wording import told
from ...convert.engines.literal import format_bytes
from ...convert.files.certified import CertifiedReport
from ...convert.model.plan import LayerPlan
from ...convert.spec import Size
from ..evidence.agreement import Agreement
from .terminal.table import Table

_UNKNOWN = "unknown"
_LISTED = 10  # names in a line


def layer_name(name: str) -> str:
    """A layer's name; the model itself has an empty one."""
    return name or "the model itself"


def note_lines(notes: Iterable[tuple[str, str | None]]) -> list[str]:
    """What the user should know of layers: a line for each note, with the layers that it is about.

    Args:
        notes: Names of layers, each with its note or None.
    """
    layers: dict[str, list[str]] = {}
    for name, note in notes:
        if note is not None:
            layers.setdefault(note, []).append(layer_name(name))
    return [f"note: {_listed(names)}: {note}" for note, names in layers.items()]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def plan_table(layers: Sequence[LayerPlan], size: Size) -> Table:
    """What a conversion would make of each layer."""
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


def report_table(certified: CertifiedReport) -> Table:
    """What a conversion made of each layer, and its bound."""
    low, high = certified.input_range
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
                bound.in_words,
            )
            for layer, bound in zip(certified.report.layers, certified.bounds, strict=True)
        ),
    )


def layer_agreement_table(title: str, agreement: Agreement) -> Table:
    """Each layer beside its convolution, in every engine."""
    columns = (f"{engine.engine}: difference / bound" for engine in agreement.engines)
    return Table(
        (title, "geometry", "heads", "alpha", *columns),
        tuple(
            (
                layer_name(layers[0].name),
                str(layers[0].spec),
                layers[0].heads,
                f"{layers[0].alpha:g}",
                *(f"{layer.difference:.1e} / {told(layer.bound, layer.outputs, form='.1e')}" for layer in layers),
            )
            for layers in zip(*(engine.layers for engine in agreement.engines), strict=True)
        ),
    )


def network_agreement_table(agreement: Agreement) -> Table:
    """The whole network beside the CNN, in every engine."""
    images = f"{agreement.images} image{'s' * (agreement.images != 1)}"
    header = (images, "accuracy", "top-1 agreement", "logit difference", "seconds")
    cnn = ("CNN", _share(agreement.accuracy), "", "", f"{agreement.seconds:.2f}")
    rows = (
        (
            f"attention, {engine.engine}",
            _share(engine.accuracy),
            f"{engine.top1_agreement:.1%}",
            f"{engine.logit_difference:.1e}",
            f"{engine.seconds:.2f}",
        )
        for engine in agreement.engines
    )
    return Table(header, (cnn, *rows))


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1%}"
