"""A converted network beside its CNN, as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...convert.certificate.comparison import LayerComparison
from ...convert.certificate.wording import told
from ..terminal.names import layer_name, note_lines
from ..terminal.output import Table
from .agreement import Agreement, LayerShape

NOTHING_RAN = "No attention layer ran: nothing is verified."


def agreement_shown(title: str, agreement: Agreement) -> list[Table | str]:
    """Each layer beside its convolution, notes on them, and the network beside the CNN.

    Args:
        title: Heading of the column of layers.
        agreement: The comparison.
    """
    engines = {engine.engine: engine.layers for engine in agreement.engines}
    notes = note_lines((layer.name, layer.note) for layer in agreement.engines[0].layers)
    return [layer_table(title, agreement.shapes, engines), *notes, _networks(agreement)]


def layer_table(title: str, shapes: Mapping[str, LayerShape], found: Mapping[str, Sequence[LayerComparison]]) -> Table:
    """Each layer beside its convolution, with a column for each engine."""
    header = (title, "geometry", "heads", "alpha", *(f"{way}: difference / bound" for way in found))
    rows = []
    for layers in zip(*found.values(), strict=True):
        shape = shapes[layers[0].name]
        cells = (f"{layer.own:.1e} / {told(layer.bound, layer.outputs, form='.1e')}" for layer in layers)
        rows.append((layer_name(layers[0].name), shape.geometry, shape.heads, f"{shape.alpha:g}", *cells))
    return Table(header, tuple(rows))


def beyond_line(names: Sequence[str]) -> str:
    """A line that names the layers beyond their bounds, or with NaN."""
    return f"Beyond the bound, or not finite: {', '.join(names)}."


def _networks(agreement: Agreement) -> Table:
    """The whole network beside the CNN, in every engine."""
    images = f"{agreement.images} image{'s' * (agreement.images != 1)}"
    header = (images, "accuracy", "top-1 agreement", "logit difference", "seconds")
    cnn = ("CNN", _share(agreement.accuracy), "", "", f"{agreement.seconds:.2f}")
    rows = (
        (
            f"attention, {engine.engine}",
            _share(engine.accuracy),
            _share(engine.top1_agreement),
            f"{engine.logit_difference:.1e}",
            f"{engine.seconds:.2f}",
        )
        for engine in agreement.engines
    )
    return Table(header, (cnn, *rows))


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
