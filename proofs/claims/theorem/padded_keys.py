"""Why keys are the pixels of the *padded* input, as in ``convert/spec.py``: without the padding's keys it fails.

A softmax adds up to 1, so attention over the pixels of a constant image gives the same at every query if its values
see the content alone; a convolution with zeros around the image does not. Values that also see positions escape: a
position can tell how many taps are inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import product

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import unequal

KEYS = (1, 2, 4)
CORNER, MIDDLE = 4, 9
ERROR = Fraction(5, 2)


def constant_failures(counts: Iterable[int] = KEYS, *, total: int = 1) -> list[str]:
    """Whether sum_k p_k x = x for every number of keys, if the p_k add up to ``total``."""
    failures = []
    x = sympy.Symbol("x", real=True)
    for count in counts:
        scores = sympy.symbols(f"s1:{count + 1}", real=True)
        weights = [sympy.exp(score) for score in scores]
        read = sum(weight / sum(weights) * x for weight in weights)
        failures += unequal(read, total * x, f"{count} keys")
    return failures


def box_failures(*, corner: int = CORNER, middle: int = MIDDLE, padding: int = 0) -> list[str]:
    """Whether a 3 x 3 box filter with ``padding`` around a 3 x 3 image of ones gives these two numbers."""

    def value(row: int, column: int) -> int:
        inside = 0 <= row < 3 and 0 <= column < 3
        return 1 if inside else padding

    found = {
        (row, column): sum(value(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1))
        for row, column in ((0, 0), (1, 1))
    }
    expected = {(0, 0): corner, (1, 1): middle}
    return [f"output {at}: {found[at]}, not {number}" for at, number in expected.items() if found[at] != number]


def positioned_failures(*, value: tuple[int, int] = (0, 1)) -> list[str]:
    """Whether values that see a position make the box filter of ones without padded keys.

    Pixel k carries (1, number of its taps inside the image). Each query of a 3 x 3 image attends to itself.
    """
    pixels = list(product(range(3), repeat=2))
    inside = {(i, j): sum(abs(i - k) <= 1 and abs(j - m) <= 1 for k, m in pixels) for i, j in pixels}
    read = {pixel: value[0] * 1 + value[1] * inside[pixel] for pixel in ((0, 0), (1, 1))}
    return [f"output {at}: {read[at]}" for at, y in {(0, 0): CORNER, (1, 1): MIDDLE}.items() if read[at] != y]


def error_failures(*, error: Fraction = ERROR) -> list[str]:
    """Whether the smallest largest error of one number for both outputs is this."""
    # Piecewise linear in y, with corners at multiples of a half.
    best = min(
        max(abs(Fraction(y, 2) - CORNER), abs(Fraction(y, 2) - MIDDLE)) for y in range(2 * CORNER, 2 * MIDDLE + 1)
    )
    return [] if best == error else [f"the best number is off by {best}, not {error}"]


def claims() -> list[Claim]:
    """The claims of this file."""
    return [
        Claim(
            name="padded-keys",
            title="Without padded keys, attention whose values see content alone is not the zero-padded convolution",
            statement=Formula(
                r"X \equiv x \implies \operatorname{Attention}(X)_q = \operatorname{Attention}(X)_{q'}; \quad"
                r" \text{3 x 3 box filter, image of ones:}\quad"
                r" \max_q |\operatorname{Attention} - \operatorname{Conv}| \ge \tfrac{5}{2}",
                "X constant implies Attention(X)_q = Attention(X)_q' for all q, q'; so max_q |Attention - Conv| >= "
                "5/2 for a 3 x 3 box filter with zeros around a 3 x 3 image of ones",
            ),
            assumptions=(
                "The keys are the pixels of the image and not its padding. A value is a function of the key's content "
                "alone: no position is added or appended to what values read.",
                "Heads, encoding, content terms and projections are any; scores may see positions.",
            ),
            steps=(
                Step(
                    Formula(r"\sum_k p_k W x = W x", "sum_k p_k W x = W x"),
                    "Softmax weights add up to 1, whatever the scores: each head gives its one value, at every query.",
                ),
                Step(
                    Formula(r"\operatorname{Conv}_{(0,0)} = 4,\quad \operatorname{Conv}_{(1,1)} = 9", "4 and 9"),
                    "In the corner five of nine taps read zeros of the padding.",
                ),
                Step(
                    Formula(
                        r"\min_y \max(|y - 4|, |y - 9|) = \tfrac{5}{2}", "min over y of max(|y - 4|, |y - 9|) = 5/2"
                    ),
                    "One number $y$ stands for both.",
                ),
                Step(
                    Formula(
                        r"x_k = (1, \#\{\text{taps of } k \text{ inside}\}),\quad W x_k = 4, 9",
                        "x_k = (1, number of taps of k inside the image), W x_k = 4 and 9",
                    ),
                    "The assumption on values is needed: where positions are added or appended to the content, as in "
                    "the article, one head that looks at its own pixel reads both numbers from there.",
                ),
            ),
            checks=(
                Check(
                    "softmax attention over a constant image is that constant",
                    Kind.INSTANCES,
                    constant_failures,
                    cases=tuple(f"{count} keys, any scores" for count in KEYS),
                ),
                Check("the two outputs of the convolution", Kind.EXACT, box_failures),
                Check("no number is nearer to both than $5/2$", Kind.EXACT, error_failures),
                Check("values that see a position give both numbers", Kind.EXACT, positioned_failures),
            ),
            source="new",
            tests=(
                "proofs.claims.test_padded_keys.test_attention_over_the_pixels_alone_is_constant_where_the_image_is",
            ),
            formal=(
                "PaddedKeys.constant_image_constant_output",
                "PaddedKeys.without_padded_keys_no_convolution",
            ),
        )
    ]
