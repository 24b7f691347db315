"""Sharpnesses (alpha) that mean something: with the smallest, heads see far; from a largest on, one pixel alone."""

from __future__ import annotations

# exp(-alpha) rounds to 0 from here on: 2^-150 (half of the smallest positive number) is exp(-103.97...) in
# binary32, 2^-1075 is exp(-745.13...) in binary64.
ONE_HOT = {"float32": 104.0, "float64": 746.0}
ONE_PIXEL = "a head sees one pixel alone " + ", ".join(
    f"from {alpha:g} on in {name}" for name, alpha in ONE_HOT.items()
)
