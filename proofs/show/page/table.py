"""The table of layers: a row for each, whose cells have a text and a value to sort by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ....convert.certificate.sampled import QUERIES
from ....convert.certificate.wording import is_useful, told
from ...terminal.names import short_name
from ...terminal.printable import scientific

NUMBER, WORDS = "number", "words"

COLUMNS = (
    ("layer", WORDS),
    ("geometry", WORDS),
    ("heads", NUMBER),
    ("\u03b1", NUMBER),
    ("parameters", NUMBER),
    ("as attention", NUMBER),
    ("difference", NUMBER),
    ("bound", NUMBER),
    ("share", NUMBER),
)


class Cell(NamedTuple):
    """The text of a cell, the value to sort by ("" is unknown), and which of NUMBER and WORDS it is."""

    text: str
    value: str | int | float
    kind: str


def table_rows(data: dict[str, Any]) -> list[list[Cell]]:
    """The cells of all layers, in the order of ``COLUMNS``."""
    compared = {} if data["agreement"] is None else data["agreement"]["layers"]
    layers = data["layers"]
    names = [short_name(", ".join(each or "the network itself" for each in layer["names"])) for layer in layers]
    return [_row(layer, name, compared) for layer, name in zip(layers, names, strict=True)]


def layers_by_note(data: dict[str, Any]) -> dict[str, list[str]]:
    """Notes about layers' weights, each with the names of its layers."""
    found: dict[str, list[str]] = {}
    for layer in data["layers"]:
        if layer["note"] is not None:
            found.setdefault(layer["note"], []).append(layer["names"][0] or "the network itself")
    return found


def caption(data: dict[str, Any]) -> str:
    """Explanation of the columns of differences and bounds."""
    agreement = data["agreement"]
    if agreement is not None:
        return (
            "Difference: the largest |attention \u2212 convolution| of the layer's outputs over "
            f"{agreement['images']:,} images, in the {agreement['engine']} engine, which shares no step with "
            "a convolution. Bound: the layer's certificate for the values that its inputs had. Share: their quotient."
        )
    return (
        "Difference: the largest |attention \u2212 convolution| of literal attention, a softmax over all keys, at "
        f"{QUERIES} queries on {data['seen']}. Bound: the layer's certificate for that input. Share: their quotient."
    )


def _row(layer: dict[str, Any], shown: str, compared: dict[str, Sequence[float]]) -> list[Cell]:
    name = layer["names"][0]
    here = layer.get("difference"), layer.get("bound"), layer.get("outputs")
    difference, bound, outputs = compared.get(name, here)
    useful = is_useful(bound, outputs)
    share = None if difference is None or not bound or not useful else difference / bound
    alphas = sorted(alpha for alpha in layer["alpha"] if alpha is not None)
    alpha = f"{alphas[0]:g}" if alphas[0] == alphas[-1] else f"{alphas[0]:g}\u2013{alphas[-1]:g}"
    return [
        Cell(shown, name, WORDS),
        Cell(layer["geometry"], layer["geometry"], WORDS),
        Cell(f"{layer['heads']:,}", layer["heads"], NUMBER),
        Cell(alpha, alphas[0], NUMBER),
        Cell(f"{layer['parameters_before']:,}", layer["parameters_before"], NUMBER),
        Cell(f"{layer['parameters_after']:,}", layer["parameters_after"], NUMBER),
        Cell(scientific(difference), "" if difference is None else difference, NUMBER),
        Cell(scientific(bound) if useful else told(bound, outputs), "" if bound is None else bound, NUMBER),
        Cell("\u2013" if share is None else f"{share:.1%}", "" if share is None else share, NUMBER),
    ]
