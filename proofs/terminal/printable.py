"""The one place where text from files, and numbers, are made fit to be printed.

Names, reasons and versions come from files, and error messages hold them. A control character in one could move the
cursor, forge a line, or turn the direction of the rest; a text of megabytes hides everything else. So whatever is
printed, and every text in a page or a picture, goes through here: what cannot be seen is escaped as in Python, and
what is too long is shortened in its middle. Errors and JSON keep the texts as they are.
"""

from __future__ import annotations

_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
LINE = 8_000  # characters of a line; an error may name a hundred layers
CELL = 400  # characters of a cell or a title
_LEFT_OUT = "..."
_SPACE = "\xa0"  # no line breaks here; our own texts use it


def raised(power: int) -> str:
    """An exponent in superscript digits."""
    return str(power).translate(_RAISED)


def scientific(value: float | None) -> str:
    """A number like 9.5 x 10^-7, with cross and superscript; a dash for an unknown one."""
    if value is None:
        return "\u2013"
    if value == 0:
        return "0"
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}\u00a0\u00d7\u00a010{raised(int(exponent))}"


def printable(text: object, limit: int = LINE) -> str:
    """One line of visible characters.

    Args:
        text: The text.
        limit: Characters of it that are kept at most, before they are escaped.
    """
    shown = str(text)
    if len(shown) > limit:
        half = limit // 2
        shown = shown[:half] + _LEFT_OUT + shown[len(shown) - half :]
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c == _SPACE else c.encode("unicode_escape").decode() for c in shown)


def printable_lines(text: object) -> str:
    """Lines of visible characters, for a text whose line breaks are ours."""
    return "\n".join(printable(line) for line in str(text).split("\n"))
