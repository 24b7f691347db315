"""Why keys are the pixels of the *padded* input, as in ``convert/spec.py``: without the padding's keys it fails."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import sympy

from ...prover.checks import all_equal, equal
from ...prover.claim import Checks, Status, claim
from ..common.scores import minus
from ..common.small import Case, convolution_of, entries

KEYS = (1, 2, 4)
CORNER, MIDDLE = 4, 9
ERROR = Fraction(5, 2)
BOX = Case.sized((3, 3), (3, 3), pads=((1, 1), (1, 1)))


@claim(
    status=Status.COQ,
    scope="The keys are the pixels of the image and not its padding. A value is a function of the key's content "
    "alone: no position is added or appended to what values read. Heads, encoding, content terms and "
    "projections are any, and scores may see positions.",
    coq=("PaddedKeys.v: constant_image_constant_output, without_padded_keys_no_convolution",),
    tests=("proofs/claims/test_padded_keys.py",),
)
def padded_keys(
    *,
    total: int = 1,
    corner: int = CORNER,
    middle: int = MIDDLE,
    mode: str = "zeros",
    error: Fraction = ERROR,
    value: tuple[int, int] = (0, 1),
) -> Checks:
    r"""Without padded keys, attention whose values see content alone is not the zero-padded convolution.

    On a constant image it gives the same at every query. For a $3 \times 3$ box filter with zeros around a
    $3 \times 3$ image of ones, one of its outputs is off by at least ${=ERROR}$.

    **Proof.** Softmax weights add up to 1, whatever the scores, so each head gives its one value at every query. The
    convolution gives ${=CORNER}$ in the corner, where five of nine taps read zeros, and ${=MIDDLE}$ in the middle; no
    number $y$ is nearer to both than ${=ERROR}$.

    The scope cannot be left out. Where positions are added or appended to the content, as in the article, a pixel may
    carry its number of taps inside the image; one head that looks at its own pixel reads both numbers from there.
    """
    x = sympy.Symbol("x", real=True)
    weights = {n: [sympy.exp(score) for score in sympy.symbols(f"s1:{n + 1}", real=True)] for n in KEYS}
    read = {f"{n} keys": (sum(weight / sum(part) * x for weight in part), total * x) for n, part in weights.items()}
    box = replace(BOX, mode=mode)
    outputs = convolution_of(box, replace(entries(box, lambda: 1), bias=[0]))
    halves = [Fraction(y, 2) for y in range(2 * CORNER, 2 * MIDDLE + 1)]  # among them every corner of the error in y
    inside = {pixel: sum(max(map(abs, minus(pixel, k))) <= 1 for k in BOX.pixels) for pixel in BOX.pixels}
    seen = {pixel: value[0] + value[1] * count for pixel, count in inside.items()}  # a pixel carries 1 and its count
    yield all_equal("softmax attention over a constant image is that constant", read, "1, 2 and 4 keys")
    yield all_equal(
        "the two outputs of the convolution",
        {"corner": (outputs[0, 0, 0], corner), "middle": (outputs[0, 1, 1], middle)},
    )
    yield equal("no number is nearer to both", min(max(y - CORNER, MIDDLE - y) for y in halves), error)
    yield all_equal(
        "values that see a position give both numbers", {"corner": (seen[0, 0], CORNER), "middle": (seen[1, 1], MIDDLE)}
    )
