"""Number formats of pictures and pages."""

from __future__ import annotations

_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


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
