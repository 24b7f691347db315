"""A transposed convolution is a convolution with stride 1 of its stuffed input: what ``convert/spec.py`` makes of it.

A transposed convolution says where each pixel goes: pixel j, times tap k, is added to output s j + d k - p. A
convolution says where each output reads. Both are written out here, independently of each other, along any number of
axes; that heads read what the convolution reads is the claim ``head-assembly``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, not_nonnegative, unequal
from ...prover.formula import fill
from ..common.small_convolutions import Element
from ..common.small_transposed import (
    CASES,
    Along,
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
    """d (K - 1) - p: zeros before the first pixel of the stuffed input; if negative, places that are dropped."""
    return line.dilation * (line.taps - 1) - line.near


def after(line: Line) -> Any:
    """d (K - 1) - p' + a: zeros after the last pixel."""
    return line.dilation * (line.taps - 1) - line.far + line.added


def flipped(line: Line, tap: Any) -> Any:
    """K - 1 - k: the tap of the convolution that has the weight of tap k."""
    return line.taps - 1 - tap


def read(line: Line, output: Any, tap: Any) -> Any:
    """i + d m: the place that tap m reads for output i, with stride 1."""
    return output + line.dilation * tap


def swapped(output: int, channel: int) -> tuple[int, int]:
    """The weight for this output and input channel lies at (input, output)."""
    return channel, output


Tap = Callable[[Line, Any], Any]
Read = Callable[[Line, Any, Any], Any]
Roles = Callable[[int, int], tuple[int, int]]


def stuffed(case: Transposed, given: Numbers, *, before: Along = before, after: Along = after) -> dict[Places, Element]:
    """x at every s-th place and zeros between, before and after: by (input channel, *place)."""
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


_PARTS: dict[str, Expr] = {
    "lands": lands(LINE, PIXEL, TAP),
    "outputs": outputs(LINE),
    "before": before(LINE),
    "after": after(LINE),
    "flipped": flipped(LINE, PLACE),
    "read": read(LINE, OUTPUT, PLACE),
    "back": read(LINE, lands(LINE, PIXEL, TAP), flipped(LINE, TAP)),
}


def claims() -> list[Claim]:
    """The claims of this file."""
    return [stuffing()]


def stuffing() -> Claim:
    """A transposed convolution is a convolution of its stuffed input."""
    return Claim(
        name="stuffed-input",
        title="A transposed convolution is a convolution of its stuffed input",
        statement=fill(
            r"b + \sum_{j, k:\ $lands = i} W_k\, x_j = b + \sum_m W_{$flipped}\, z_{$read},\quad z_{$before + s j} ="
            r" x_j,\ z = 0 \text{ elsewhere}",
            "b + sum over j, k with $lands = i of W_k x_j = b + sum_m W_[$flipped] z_[$read], with z = x_j at $before "
            "+ s*j and 0 elsewhere, on each axis",
            **_PARTS,
        ),
        assumptions=(
            "$s$, $d$, $K$ and $L$ are stride, dilation, taps and pixels of an axis, $p$ and $p'$ the padding "
            "before and after it, $a$ the output padding.",
            "$z$ has no places but those from the first to the last that are counted: where a pad is negative, "
            "pixels beyond the end are dropped.",
            "$W_k$ is the slice at tap $k$, from input to output channels; with groups it is block diagonal.",
        ),
        steps=_steps(),
        checks=(
            Check(
                "the flipped tap reads the place of the pixel, for all $s$, $d$, $p$ and $K$",
                Kind.SYMBOLIC,
                index_failures,
            ),
            Check(
                "both have as many outputs, which read places of $z$ only, for all sizes",
                Kind.SYMBOLIC,
                length_failures,
            ),
            Check(
                "both sides are the same polynomial in weights, biases and pixels",
                Kind.INSTANCES,
                stuffing_failures,
                cases=tuple(map(str, CASES)),
            ),
        ),
        justifies=(
            "conv2attn.convert.spec.ConvSpec.pads",
            "conv2attn.convert.spec.ConvSpec.pad",
            "conv2attn.convert.spec.ConvSpec.kernel",
            "conv2attn.convert.spec.ConvSpec.query_stride",
        ),
        source="new",
        tests=(
            "proofs.claims.test_stuffing.test_the_keys_and_the_kernel_of_the_code_are_those_of_the_proof",
            "proofs.claims.test_stuffing.test_the_definition_is_that_of_pytorch",
            "convert.attention.test_axes.test_each_head_looks_at_its_tap_of_the_key_grid",
        ),
    )


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            fill(
                r"(j, k) \mapsto i = $lands,\quad 0 \le i \le $outputs - 1",
                "(j, k) -> i = $lands, 0 <= i <= $outputs - 1",
                **_PARTS,
            ),
            "The definition: pixel $j$ times tap $k$ is added to output $i$, if there is such an output.",
        ),
        Step(
            fill(
                r"i + d (K - 1 - k) = $back = \bigl($before\bigr) + s j",
                "i + d (K - 1 - k) = $back = ($before) + s*j",
                **_PARTS,
            ),
            "So the tap $m = K - 1 - k$ of output $i$ reads the place of pixel $j$: flipping is one-to-one.",
        ),
        Step(
            Formula(
                r"z_{i + d m} \ne 0 \implies i + d m = d (K - 1) - p + s j \text{ for one } j",
                "z_[i + d m] != 0 only if i + d m = d (K - 1) - p + s j, for one j",
            ),
            "All other places hold 0. So the terms of both sums are the same, one by one.",
        ),
        Step(
            fill(
                r"(L - 1) s + 1 + \bigl($before\bigr) + \bigl($after\bigr) - d (K - 1) = $outputs",
                "(L - 1) s + 1 + ($before) + ($after) - d (K - 1) = $outputs",
                **_PARTS,
            ),
            "The outputs of a convolution with stride 1 are as many as those of the transposed one, and "
            "$0 <= i + d m$ up to the last place: a pixel that a negative pad drops is one that no output reads.",
        ),
        Step(
            Formula(
                r"W'_{o, c, m} = W_{c, o, K - 1 - m}",
                "W'_[o, c, m] = W_[c, o, K - 1 - m]",
            ),
            "The kernel of the convolution: a transposed one's weight is stored from input to output channels, so the "
            "two change places, within each group. Its heads sit at the taps of $W'$ (claim `head-assembly`).",
        ),
    )
