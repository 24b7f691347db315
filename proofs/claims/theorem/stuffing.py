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
from ...prover.claim import Check, Checks, Status, claim
from ..common.small_convolutions import (
    CASES,
    Along,
    Element,
    Line,
    Numbers,
    Places,
    Transposed,
    lands,
    outputs,
    transposed_convolution,
    transposed_symbols,
)


def before(line: Line) -> Any:
    """D (K - 1) - p: zeros before the first pixel of the stuffed input; if negative, places that are dropped."""
    return line.dilation * (line.taps - 1) - line.near


def after(line: Line) -> Any:
    """D (K - 1) - p' + a: zeros after the last pixel."""
    return line.dilation * (line.taps - 1) - line.far + line.added


def flipped(line: Line, tap: Any) -> Any:
    """K - 1 - k: the tap of the convolution that has the weight of tap k."""
    return line.taps - 1 - tap


def read(line: Line, output: Any, tap: Any) -> Any:
    """I + d m: the place that tap m reads for output i, with stride 1."""
    return output + line.dilation * tap


def swapped(output: int, channel: int) -> tuple[int, int]:
    """The weight for this output and input channel lies at (input, output)."""
    return channel, output


Tap = Callable[[Line, Any], Any]
Read = Callable[[Line, Any, Any], Any]
Roles = Callable[[int, int], tuple[int, int]]


def stuffed(case: Transposed, given: Numbers, *, before: Along = before, after: Along = after) -> dict[Places, Element]:
    """X at every s-th place and zeros between, before and after: by (input channel, *place)."""
    places = case.grid(lambda line: (line.pixels - 1) * line.stride + 1 + before(line) + after(line))
    grid = {(c, *place): given.zero for c in range(case.channels[0]) for place in places}
    for (c, *pixel), value in given.image.items():
        place = (c, *(before(line) + line.stride * j for line, j in zip(case.lines, pixel, strict=True)))
        if place in grid:
            grid[place] = value
    return grid


def flipped_kernel(
    case: Transposed, given: Numbers, *, flip: Tap = flipped, roles: Roles = swapped
) -> dict[Places, Element]:
    """The convolution's kernel: by (output channel, input channel, *tap)."""
    taps = case.grid(lambda line: line.taps)
    return {
        (o, c, *tap): given.weight[(*roles(o, c), *map(flip, case.lines, tap))] for o, c in case.mixed for tap in taps
    }


def stuffing_failures(
    cases: Iterable[Transposed] = CASES,
    *,
    flip: Tap = flipped,
    read: Read = read,
    before: Along = before,
    after: Along = after,
    roles: Roles = swapped,
) -> list[str]:
    """The outputs in which the convolution of the stuffed input is another polynomial, one for each case."""
    failures = []
    for case in cases:
        given = transposed_symbols(case)
        grid = stuffed(case, given, before=before, after=after)
        kernel = flipped_kernel(case, given, flip=flip, roles=roles)
        for (o, *output), expected in transposed_convolution(case, given).items():
            found = given.bias[o]
            for (target, c, *tap), weight in kernel.items():
                if target == o:
                    found += weight * grid.get((c, *map(read, case.lines, output, tap)), given.zero)
            if expected != found:
                failures.append(f"{case}: output {(o, *output)} is {found}, not {expected}")
                break
    return failures


_NAMES = ("K", "s", "d", "p", "p'", "a", "L")
LINE = Line(*sympy.symbols(_NAMES, integer=True, nonnegative=True))
PIXEL, TAP, OUTPUT, PLACE = sympy.symbols("j k i m", integer=True, nonnegative=True)


def index_failures(*, flip: Tap = flipped, read: Read = read, before: Along = before) -> list[str]:
    """Whether, for the output that pixel j lands on by tap k, the flipped tap reads the place of pixel j."""
    found = read(LINE, lands(LINE, PIXEL, TAP), flip(LINE, TAP))
    failures = unequal(found, before(LINE) + LINE.stride * PIXEL, "the place that is read minus that of the pixel")
    return failures + unequal(flip(LINE, flip(LINE, TAP)), TAP, "a tap flipped twice")


def length_failures(*, before: Along = before, after: Along = after, read: Read = read) -> list[str]:
    """Whether the stuffed input has as many outputs, and all that they read, for all sizes."""
    places = (LINE.pixels - 1) * LINE.stride + 1 + before(LINE) + after(LINE)
    failures = unequal(places - LINE.dilation * (LINE.taps - 1), outputs(LINE), "outputs of the convolution")
    earlier, others = sympy.symbols("i_later k_later", integer=True, nonnegative=True)
    last = read(LINE, outputs(LINE) - 1 - earlier, LINE.taps - 1 - others)
    failures += not_nonnegative(places - 1 - last, "the last place minus a place that is read")
    return failures + not_nonnegative(read(LINE, OUTPUT, PLACE), "a place that is read")


@claim(
    status=Status.INSTANCES,
    scope="On each axis: stride $s$, dilation $d$, $K$ taps, $L$ pixels, padding $p$ before and $p'$ after, output "
    "padding $a$. Where a pad is negative, the stuffed input drops pixels.",
    justifies=("convert/spec.py: ConvSpec.pads, ConvSpec.pad, ConvSpec.kernel, ConvSpec.query_stride",),
    tests=(
        "proofs/claims/test_stuffing.py: test_the_keys_and_the_kernel_of_the_code_are_those_of_the_proof, "
        "test_the_definition_is_that_of_pytorch",
        "convert/layer/test_axes.py: test_each_head_looks_at_its_tap_of_the_key_grid",
    ),
)
def stuffed_input() -> Checks:
    r"""A transposed convolution is a convolution with stride 1 of its stuffed input.

    The stuffed input $z$ holds $x_j$ at place ${=before(LINE)} + s j$ and zeros elsewhere, with ${=after(LINE)}$
    places after the last pixel. Then

    ```math
    b + \sum_{j, k:\ {=lands(LINE, PIXEL, TAP)} = i} W_k\, x_j = b + \sum_m W'_m\, z_{{=read(LINE, OUTPUT, PLACE)}},
    \qquad W'_m = W_{{=flipped(LINE, PLACE)}} ,
    ```

    where $W'$ swaps the roles of input and output channels, within each group.

    **Proof.** Pixel $j$ times tap $k$ is added to output $i = {=lands(LINE, PIXEL, TAP)}$. Tap
    $m = {=flipped(LINE, TAP)}$ of that output reads place ${=back}$, which is that of pixel $j$. Flipping is
    one-to-one and all other places hold 0, so the terms of both sums are the same. The convolution has
    ${=outputs(LINE)}$ outputs, as many as the transposed one, and reads places of $z$ only: a pixel that a negative
    pad drops is one that no output reads. Heads sit at the taps of $W'$ (`head-assembly`).
    """
    back = read(LINE, lands(LINE, PIXEL, TAP), flipped(LINE, TAP))
    yield Check("the flipped tap reads the place of the pixel, for all $s$, $d$, $p$ and $K$", index_failures)
    yield Check("both have as many outputs, which read places of $z$ only, for all sizes", length_failures)
    yield Check(
        "both sides are the same polynomial in weights, biases and pixels",
        stuffing_failures,
        f"{len(CASES)} transposed convolutions",
    )
