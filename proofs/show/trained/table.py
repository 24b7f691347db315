"""Encodings, parameters and accuracy of every network that was run (the draft's Tables 1 and 2)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ....learn.experiment.folder import Result
from ..pictures.style import GREY, Sheet

HEADER = ("network", "positions", "content", "parameters", "seeds", "test accuracy", "worst seed")
_POSITIONS = {
    "quadratic": "relative, isotropic",
    "gaussian": "relative, any Gaussian",
    "learned": "relative, tables",
    "sinusoidal": "relative, sinusoids",
    "absolute": "absolute, sinusoids",
}
TYPES = ("sinusoids", "learned", "quadratic", "relative", "content")
"""Columns of the draft's Table 1, and whether heads look at the image."""
_TYPES = {
    "quadratic": {"quadratic", "relative"},
    "gaussian": {"quadratic", "relative"},
    "learned": {"learned", "relative"},
    "sinusoidal": {"sinusoids", "relative"},
    "absolute": {"sinusoids"},
}
_MARK = "\u2713"
_COLUMNS = ("network", *TYPES, *HEADER[3:])
_PLACES = (0.15, 1.65, 2.3, 2.95, 3.55, 4.15, 5.2, 5.75, 6.85, 7.7)  # inches: the first a left end, then middles of the
_MIDDLES = range(1, 1 + len(TYPES))  # columns with marks, then right ends
_WIDTH, _ROW = 7.85, 0.21


def table_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """The texts of the rows, under ``HEADER``, in the order in which the encodings come."""
    return [_row(name, own) for name, own in by_encoding(results).items()]


def by_encoding(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs of each encoding."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.encoding, []).append(result)
    return found


def _row(name: str, runs: Sequence[Result]) -> tuple[str, ...]:
    base, _, content = name.partition("+")
    accuracies = [100 * run.test for run in runs]
    return (
        name,
        _POSITIONS.get(base, "convolution"),
        "yes" if content else "no",
        f"{runs[0].parameters:,}",
        str(len(runs)),
        f"{spread(accuracies, 1)} %",
        f"{min(accuracies):.1f} %",
    )


def spread(values: Sequence[float], digits: int, *, signed: bool = False) -> str:
    """Mean and, of several, standard deviation."""
    mean = f"{statistics.fmean(values):{'+' if signed else ''}.{digits}f}"
    return mean if len(values) == 1 else f"{mean} \u00b1 {statistics.stdev(values):.{digits}f}"


def distance_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """For each encoding with heads, the mean distance of what is attended, in pixels, layer by layer."""
    rows = []
    for name, runs in by_encoding(results).items():
        for when, title in ((0, "before"), (1, "after")):
            layers = zip(*(run.nonlocality[when] for run in runs if run.nonlocality), strict=True)
            if cells := [spread(each, 2) for each in layers]:
                rows.append((name, title, *cells))
    return rows


def marks(encoding: str) -> tuple[str, ...]:
    """A mark, or nothing, under each of ``TYPES``."""
    base, _, content = encoding.partition("+")
    own = _TYPES.get(base, set()) | {content}
    return tuple(_MARK if name in own else "" for name in TYPES)


def draw_table(results: Sequence[Result], *, data: str) -> Sheet:
    """The table as a picture."""
    rows = [(row[0], *marks(row[0]), *row[3:]) for row in table_rows(results)]
    sheet = Sheet(
        _WIDTH,
        _ROW * (len(rows) + 1) + 0.15,
        title=f"Encodings, parameters and accuracy on {data}",
        caption=(
            "Accuracy on the test images, which each network saw once, after its best epoch on the validation images: "
            "mean \u00b1 standard deviation over the seeds. Types of encoding as in Table 1 of the draft, where "
            "Vaswani et al. (2017) have sinusoids; Dai et al. and Yang et al. (2019) relative ones; Radford et al. and "
            "Devlin et al. (2018) learned ones; Bello et al. and Ramachandran et al. (2019) learned, relative ones, "
            "all of them with content. Residual networks have no encoding."
        ),
    )
    for number, row in enumerate((_COLUMNS, *rows)):
        for column, (place, words) in enumerate(zip(_PLACES, row, strict=True)):
            side = "center" if column in _MIDDLES else "right" if column else "left"
            style = {"size": 7.5, "va": "top", "ha": side, "weight": "normal" if number else "bold"}
            sheet.write(place, 0.05 + _ROW * number, words, **style)
    axes = sheet.axes(0.15, _ROW, _WIDTH - 0.3, 0.001)
    axes.axis("off")
    axes.axhline(0.5, color=GREY, linewidth=0.6, clip_on=False)
    return sheet
