"""Common style of all pictures: colours, letters, title above, caption below, reproducible files."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...convert.errors import ConversionError, ToolError, importing, refusing
from ..text import printable_lines

_LACKING = 'pictures are drawn with matplotlib, which is not installed: pip install "conv2attn[plot]"'
with importing("matplotlib", ToolError(_LACKING)):
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.text import Text

# Okabe and Ito's colours, which colour-blind people can tell apart.
INK, GREY, FAINT, PAPER = "#222222", "#777777", "#d9d9d6", "#ffffff"
BLUE, SKY, VERMILION, ORANGE, GREEN, PURPLE = "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7"
HEAD_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)

# From paper to dark blue, each step darker: it reads the same in grey.
ATTENTION = LinearSegmentedColormap.from_list("attention", ["#fbfbf9", "#c6e2f3", SKY, BLUE, "#00304d"])
SIGNED = "PuOr"  # negative brown, positive violet, zero white

RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that files are the same everywhere
    "svg.fonttype": "none",  # letters stay letters: a third of the size, and words can be searched
    "font.size": 8,
    "text.color": INK,
    "text.parse_math": False,  # names of layers are text, dollar signs included
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.hashsalt": "conv2attn",
    "figure.dpi": 100,
    "savefig.dpi": 200,
}
_UNDATED: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_TITLE, _LINE = 0.42, 0.155  # inches: the title's strip, a line of the caption
_TITLE_LINE = 0.19
_LETTERS_PER_INCH, _TITLE_LETTERS_PER_INCH = 17.5, 11
_MOST_PIXELS, _LONGEST_SIDE = 2**26, 2**16 - 1  # of a picture; the latter is what Agg can draw


class Sheet:
    """A figure with a title, a caption and the space between them, measured in inches.

    Attributes:
        figure: The figure.
        width: Its width.
        body: Height between title and caption.

    Raises:
        ConversionError: It would have too many pixels; this is so before anything is drawn.
    """

    def __init__(self, width: float, body: float, *, title: str, caption: str) -> None:
        lines = textwrap.wrap(caption, int((width - 0.3) * _LETTERS_PER_INCH), break_long_words=True)
        self.width, self.body = width, body
        self._below = 0.2 + _LINE * len(lines)
        titles = textwrap.wrap(title, int((width - 0.3) * _TITLE_LETTERS_PER_INCH))
        self._above = _TITLE + _TITLE_LINE * (len(titles) - 1)
        self._height = self._above + body + self._below
        sides = [round(RC["savefig.dpi"] * inches) for inches in (width, self._height)]
        if math.prod(sides) > _MOST_PIXELS or max(sides) > _LONGEST_SIDE:
            raise ConversionError(
                f"the picture would have {sides[0]:,} x {sides[1]:,} pixels; at most {_MOST_PIXELS:,} are drawn, and "
                f"{_LONGEST_SIDE:,} along a side"
            )
        self.figure = Figure(figsize=(width, self._height), facecolor=PAPER)
        self.figure.text(0.15 / width, 1 - 0.16 / self._height, "\n".join(titles), size=10.5, weight="bold", va="top")
        self.figure.text(
            0.15 / width, 0.1 / self._height, "\n".join(lines), size=7.5, color="#444444", va="bottom", linespacing=1.35
        )

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Axes at a place of the body, in inches from its upper left corner."""
        bottom = self._below + self.body - top - height
        box = (left / self.width, bottom / self._height, width / self.width, height / self._height)
        return self.figure.add_axes(box)

    def write(self, left: float, top: float, words: str, **style: Any) -> None:
        """Words at a place of the body, in inches from its upper left corner."""
        self.figure.text(left / self.width, 1 - (self._above + top) / self._height, words, **style)

    def save(self, form: str) -> bytes:
        """The picture as a file's content, the same every time."""
        for text in self.figure.findobj(Text):
            text.set_text(printable_lines(text.get_text()))
        stream = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # a box stands for a letter that is not there
            with refusing("the picture cannot be drawn"):  # matplotlib looks at the environment, too
                self.figure.savefig(stream, format=form, metadata=_UNDATED[form])
        return stream.getvalue()


def outline(left: float, top: float, width: float, height: float, **style: Any) -> Rectangle:
    """A rectangle that is not filled, to be added to axes."""
    return Rectangle((left, top), width, height, fill=False, **style)


@contextmanager
def drawn_in_style() -> Iterator[None]:
    """A context in which figures are drawn and saved in this style, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield
