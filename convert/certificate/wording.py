"""Wording of bounds: a number where the bound is useful, words where it is not.

A bound above the largest output does not even tell the attention from a layer whose outputs are all 0. So there is no
useful bound beyond ``USELESS`` times the largest absolute value of an output, and the number alone is not shown. Data
keep the number.
"""

from __future__ import annotations

import math

USELESS = 1.0

NO_USE = "No useful bound on the outputs of the whole network: a bound for every input grows with every layer"


def is_useful(bound: float | None, outputs: float | None) -> bool:
    """Whether a bound is finite and at most the largest absolute output; None stands for an unknown number."""
    return bound is not None and math.isfinite(bound) and (outputs is None or bound <= USELESS * outputs)


def told(bound: float | None, outputs: float | None, *, form: str = ".2g") -> str:
    """Formats a bound for people.

    Args:
        bound: The bound, or None if there is no finite one.
        outputs: The largest absolute value of an output, or None if that is not known.
        form: Format of a useful bound.
    """
    if bound is None or not math.isfinite(bound):
        return "no finite bound"
    if is_useful(bound, outputs):
        return f"{bound:{form}}"
    return f"no useful bound ({bound:.2g}; outputs reach {outputs:.2g})"
