"""A converted network beside its CNN, as tables for people."""

from __future__ import annotations

from ...convert.certificate.wording import told
from ..terminal.names import layer_name, note_lines
from ..terminal.table import Table
from .agreement import Agreement

_UNKNOWN = "unknown"


def agreement_shown(title: str, agreement: Agreement) -> list[Table | str]:
    """Each layer beside its convolution, what is to be said of them, and the network beside the CNN.

    Args:
        title: Head of the column of layers.
        agreement: What was found.
    """
    notes = note_lines((layer.name, layer.note) for layer in agreement.engines[0].layers)
    return [_layers(title, agreement), *notes, _networks(agreement)]


def _layers(title: str, agreement: Agreement) -> Table:
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
    return _UNKNOWN if value is None else f"{value:.1%}"
