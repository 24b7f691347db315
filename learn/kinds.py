"""Networks of experiments by name. Torch is not needed: the command line asks first."""

from __future__ import annotations

from ..convert.errors import SelectionError

ENCODINGS = ("quadratic", "gaussian", "learned", "learned+content", "sinusoidal", "absolute")
"""Encodings that a comparison has; every encoding can also be asked for with "+content"."""
BLOCKS = {"resnet10": 1, "resnet18": 2}
"""Blocks in each of the four stages; a block has two convolutions, and the first and the last layer make 10 and 18."""
ALL = (*ENCODINGS, *BLOCKS)
"""The kinds of network that can be compared."""


def encodings_of(text: str) -> tuple[str, ...]:
    """The encodings, or residual networks, that a text asks for: "all", or names with commas between them.

    Raises:
        SelectionError: There is no such encoding.
    """
    names = ALL if text == "all" else tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    known = {*ALL, *(f"{name}+content" for name in ENCODINGS if "+" not in name)}
    if unknown := [name for name in names if name not in known]:
        raise SelectionError(f"there is no encoding {unknown[0]!r}; there are {', '.join(ALL)}, and all")
    return names
