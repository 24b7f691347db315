"""Why keys are the pixels of the *padded* input, as in ``convert/spec.py``: without the padding's keys it fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import sympy

from ...prover.checks import unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import minus
from ..common.small import Case, convolution, entries

KEYS = (1, 2, 4)
CORNER, MIDDLE = 4, 9
ERROR = Fraction(5, 2)
WANTED = {(0, 0): CORNER, (1, 1): MIDDLE}  # outputs of the box filter
BOX = Case.sized((3, 3), (3, 3), pads=((1, 1), (1, 1)))


def constant_failures(counts: Iterable[int] = KEYS, *, total: int = 1) -> Failures:
    """Fails unless sum_k p_k x = x for every number of keys, if the p_k add up to ``total``."""
    x = sympy.Symbol("x", real=True)
    for count in counts:
        weights = [sympy.exp(score) for score in sympy.symbols(f"s1:{count + 1}", real=True)]
        read = sum(weight / sum(weights) * x for weight in weights)
        yield from unequal(read, total * x, f"{count} keys")


def box_failures(*, corner: int = CORNER, middle: int = MIDDLE, mode: str = "zeros") -> Failures:
    """Fails unless a 3 x 3 box filter, with this padding around a 3 x 3 image of ones, gives these two numbers."""
    box = replace(BOX, mode=mode)
    found = convolution(box, replace(entries(box, lambda: 1), bias=[0]))
    expected = {(0, 0, 0): corner, (0, 1, 1): middle}
    return [f"output {at}: {found[at]}, not {number}" for at, number in expected.items() if found[at] != number]


def error_failures(*, error: Fraction = ERROR) -> Failures:
    """Fails unless the smallest largest error of one number for both outputs is this."""
    # Piecewise linear in y, with corners at multiples of a half.
    best = min(
        max(abs(Fraction(y, 2) - CORNER), abs(Fraction(y, 2) - MIDDLE)) for y in range(2 * CORNER, 2 * MIDDLE + 1)
    )
    return [] if best == error else [f"the best number is off by {best}, not {error}"]


def positioned_failures(*, value: tuple[int, int] = (0, 1)) -> Failures:
    """Fails unless values that see a position make the box filter of ones without padded keys.

    Pixel k carries (1, number of its taps inside the image). Each query of a 3 x 3 image attends to itself.
    """
    inside = {pixel: sum(max(map(abs, minus(pixel, k))) <= 1 for k in BOX.pixels) for pixel in WANTED}
    read = {pixel: value[0] * 1 + value[1] * inside[pixel] for pixel in WANTED}
    return [f"output {at}: {read[at]}" for at, wanted in WANTED.items() if read[at] != wanted]


@claim(
    status=Status.COQ,
    scope="The keys are the pixels of the image and not its padding. A value is a function of the key's content "
    "alone: no position is added or appended to what values read. Heads, encoding, content terms and "
    "projections are any, and scores may see positions.",
    coq=("PaddedKeys.v: constant_image_constant_output, without_padded_keys_no_convolution",),
    tests=("proofs/claims/test_padded_keys.py: test_attention_over_the_pixels_alone_is_constant_where_the_image_is",),
)
def padded_keys() -> Checks:
    r"""Without padded keys, attention whose values see content alone is not the zero-padded convolution.

    On a constant image it gives the same at every query. For a $3 \times 3$ box filter with zeros around a
    $3 \times 3$ image of ones, one of its outputs is off by at least ${=ERROR}$.

    **Proof.** Softmax weights add up to 1, whatever the scores, so each head gives its one value at every query. The
    convolution gives ${=CORNER}$ in the corner, where five of nine taps read zeros, and ${=MIDDLE}$ in the middle; no
    number $y$ is nearer to both than ${=ERROR}$.

    The scope cannot be left out. Where positions are added or appended to the content, as in the article, a pixel may
    carry its number of taps inside the image; one head that looks at its own pixel reads both numbers from there.
    """
    yield Check("softmax attention over a constant image is that constant", constant_failures, "1, 2 and 4 keys")
    yield Check("the two outputs of the convolution", box_failures)
    yield Check("no number is nearer to both", error_failures)
    yield Check("values that see a position give both numbers", positioned_failures)
