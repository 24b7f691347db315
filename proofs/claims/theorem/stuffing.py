"""A transposed convolution is a convolution with stride 1 of its stuffed input: what ``convert/spec.py`` makes of it.

A transposed convolution says where each pixel goes: pixel j, times tap k, is added to output s j + d k - p. A
convolution says where each output reads. Both are written out here, independently of each other, along any number of
axes; that heads read what the convolution reads is the claim ``head-assembly``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import sympy

from ...prover.checks import not_nonnegative, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import Point
from ..common.small import (
    Axis,
    Case,
    Element,
    Entries,
    convolution_of,
    outputs,
    padded,
    place,
    reached,
    symbols,
    transposed_convolution,
    transposed_outputs,
)

CASES = tuple(
    Case(axes, channels, groups, is_transposed=True)
    for axes, channels, groups in (
        ((Axis(3, 1),), (1, 1), 1),
        ((Axis(3, 3, 2, 1, 1, 1, 1),), (1, 1), 1),
        ((Axis(3, 2, 3, 2, 0, 0, 2),), (2, 1), 1),
        ((Axis(6, 3, 2, 1, 4, 4, 1),), (1, 1), 1),  # padding > d (K - 1): pixels are dropped
        ((Axis(4, 2, 1, 3, 1, 4, 2),), (1, 1), 1),
        ((Axis(3, 1, 3, 1, 2, 0, 1),), (1, 2), 1),  # one tap: outputs that are zero between pixels
        ((Axis(2, 2, 2), Axis(3, 3, 1, 1, 1, 1)), (1, 1), 1),
        ((Axis(2, 3, 2, 1, 1, 1, 1), Axis(3, 2, 1, 2, 1, 0)), (2, 4), 2),
        ((Axis(4, 2, 2, 1, 2, 2, 1), Axis(2, 2, 3, 2, 3, 1, 2)), (2, 2), 1),
        ((Axis(2, 2, 1, 2, 0, 1, 1), Axis(3, 1, 2, 1, 0, 0, 1)), (2, 2), 2),
        ((Axis(2, 2, 2, 1, 1, 1, 1), Axis(2, 1), Axis(2, 2, 1, 2, 1, 1)), (1, 1), 1),
    )
)
LINE = Axis(*sympy.symbols("L K s d p p' a", integer=True, nonnegative=True))
PIXEL, TAP, OUTPUT, PLACE = sympy.symbols("j k i m", integer=True, nonnegative=True)


def stuffed(axis: Axis) -> Axis:
    """The axis of the convolution: s - 1 zeros between two pixels, d (K - 1) - p before and d (K - 1) - p' + a after.

    If one of these is negative, so many places are dropped. The stride is 1.
    """
    full = axis.dilation * (axis.taps - 1)
    length = (axis.pixels - 1) * axis.stride + 1
    return Axis(length, axis.taps, 1, axis.dilation, full - axis.before, full - axis.after + axis.added)


def flipped(axis: Axis, tap: Any) -> Any:
    """K - 1 - k: the tap of the convolution that has the weight of tap k."""
    return axis.taps - 1 - tap


def swapped(output: int, channel: int) -> tuple[int, int]:
    """The weight for this output and input channel lies at (input, output)."""
    return channel, output


Stuffing = Callable[[Axis], Axis]
Flip = Callable[[Axis, Any], Any]
Roles = Callable[[int, int], tuple[int, int]]


def stuffed_convolution(
    case: Case, given: Entries, *, stuffed: Stuffing = stuffed, flip: Flip = flipped, roles: Roles = swapped
) -> tuple[Case, Entries]:
    """The convolution that a transposed one is, with its flipped kernel and the pixels between zeros."""
    plain = Case(tuple(map(stuffed, case.axes)), case.channels, case.groups)
    weight = {
        (o, c, *tap): given.weight[(*roles(o, c), *case.along(flip, tap))] for o, c in case.mixed for tap in case.taps
    }
    image: dict[Point, Element] = {(c, *pixel): given.zero for c in range(case.channels[0]) for pixel in plain.pixels}
    for (c, *pixel), value in given.image.items():
        image[(c, *case.along(lambda axis, j: axis.stride * j, tuple(pixel)))] = value
    return plain, Entries(given.zero, weight, given.bias, image)


def stuffing_failures(
    cases: Iterable[Case] = CASES, *, stuffed: Stuffing = stuffed, flip: Flip = flipped, roles: Roles = swapped
) -> Failures:
    """The outputs in which the convolution of the stuffed input is another polynomial."""
    for case in cases:
        given = symbols(case)
        found = convolution_of(*stuffed_convolution(case, given, stuffed=stuffed, flip=flip, roles=roles))
        for output, polynomial in transposed_convolution(case, given).items():
            if polynomial != found.get(output):
                yield f"{case}: output {output} is {found.get(output)}, not {polynomial}"


def index_failures(*, stuffed: Stuffing = stuffed, flip: Flip = flipped) -> Failures:
    """Fails unless, for the output that pixel j lands on by tap k, the flipped tap reads the place of pixel j."""
    axis = stuffed(LINE)
    found = place(axis, reached(LINE, PIXEL, TAP), flip(LINE, TAP))
    yield from unequal(found, axis.before + LINE.stride * PIXEL, "the place that is read minus that of the pixel")
    yield from unequal(flip(LINE, flip(LINE, TAP)), TAP, "a tap flipped twice")


def length_failures(*, stuffed: Stuffing = stuffed) -> Failures:
    """Fails unless the stuffed input has as many outputs, and all that they read, for all sizes."""
    axis, count = stuffed(LINE), transposed_outputs(LINE)
    yield from unequal(outputs(axis), count, "outputs of the convolution")
    earlier, others = sympy.symbols("i_later k_later", integer=True, nonnegative=True)
    last = place(axis, count - 1 - earlier, LINE.taps - 1 - others)
    yield from not_nonnegative(padded(axis) - 1 - last, "the last place minus a place that is read")
    yield from not_nonnegative(place(axis, OUTPUT, PLACE), "a place that is read")


@claim(
    status=Status.INSTANCES,
    scope="On each axis: stride $s$, dilation $d$, $K$ taps, $L$ pixels, padding $p$ before and $p'$ after, output "
    "padding $a$. Where a pad is negative, the stuffed input drops pixels.",
    justifies=("convert/spec.py: ConvSpec.pads, ConvSpec.pad, ConvSpec.kernel, ConvSpec.query_stride",),
    tests=("proofs/claims/test_stuffing.py", "convert/layer/test_axes.py"),
)
def stuffed_input() -> Checks:
    r"""A transposed convolution is a convolution with stride 1 of its stuffed input.

    The stuffed input $z$ holds $x_j$ at place ${=axis.before} + s j$ and zeros elsewhere, with ${=axis.after}$
    places after the last pixel. Then

    ```math
    b + \sum_{j, k:\ {=landed} = i} W_k\, x_j = b + \sum_m W'_m\, z_{{=read}},
    \qquad W'_m = W_{{=flipped(LINE, PLACE)}} ,
    ```

    where $W'$ swaps the roles of input and output channels, within each group.

    **Proof.** Pixel $j$ times tap $k$ is added to output $i = {=landed}$. Tap
    $m = {=flipped(LINE, TAP)}$ of that output reads place ${=back}$, which is that of pixel $j$. Flipping is
    one-to-one and all other places hold 0, so the terms of both sums are the same. The convolution has
    ${=count}$ outputs, as many as the transposed one, and reads places of $z$ only: a pixel that a negative
    pad drops is one that no output reads. Heads sit at the taps of $W'$ (`head-assembly`).
    """
    axis, landed, count = stuffed(LINE), reached(LINE, PIXEL, TAP), transposed_outputs(LINE)
    read, back = place(axis, OUTPUT, PLACE), place(axis, landed, flipped(LINE, TAP))
    yield Check("the flipped tap reads the place of the pixel, for all $s$, $d$, $p$ and $K$", index_failures)
    yield Check("both have as many outputs, which read places of $z$ only, for all sizes", length_failures)
    yield Check(
        "both sides are the same polynomial in weights, biases and pixels",
        stuffing_failures,
        f"{len(CASES)} transposed convolutions",
    )
