"""A convolution is a convolution with stride 1 over patches: what ``convert/attention/patches.py`` makes of it.

Both sides are written out here along one axis, independently of the code: the convolution over pixels, and the one over
patches that has its outputs. Axes do not mix, so along several the same holds on each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

import sympy
from sympy import ZZ
from sympy.polys.rings import ring

from ...prover.checks import unequal
from ...prover.claim import Check, Checks, Status, claim


class Line(NamedTuple):
    """A convolution along one axis whose outputs are one for every stride pixels, in numbers or in symbols.

    Attributes:
        taps: K.
        stride: s, which divides the patch.
        dilation: d.
        before: Pixels b of padding before the axis; after it there are as many as one output for s pixels takes.
        patch: P.
        patches: Patches of the input.
    """

    taps: Any
    stride: Any
    dilation: Any
    before: Any
    patch: Any
    patches: Any

    def __str__(self) -> str:
        return (
            f"{self.taps} taps, stride {self.stride}, dilation {self.dilation}, {self.before} pixels before, "
            f"{self.patches} patches of {self.patch}"
        )


def place(line: Line, output: Any, tap: Any) -> Any:
    """s u + d m - b: where a tap reads for output u of a patch, from the patch's first pixel."""
    return line.stride * output + line.dilation * tap - line.before


def first(line: Line) -> int:
    """floor(-b / P): the first patch that is read, from a query's own."""
    return int(-line.before // line.patch)


def last(line: Line) -> int:
    """floor((P - s + d (K - 1) - b) / P): the last one."""
    return int((line.patch - line.stride + line.dilation * (line.taps - 1) - line.before) // line.patch)


End = Callable[[Line], int]
Split = Callable[[int, int], tuple[int, int]]
# K, s, d, b, P, patches.
CASES = (
    Line(3, 1, 1, 1, 2, 3),
    Line(5, 1, 1, 2, 2, 3),
    Line(7, 1, 1, 3, 2, 4),
    Line(3, 1, 1, 1, 1, 4),
    Line(4, 1, 1, 1, 3, 2),
    Line(3, 1, 3, 3, 2, 3),
    Line(3, 2, 1, 1, 2, 3),
    Line(7, 2, 1, 3, 4, 2),
    Line(4, 4, 1, 0, 4, 2),
    Line(5, 2, 2, 4, 6, 2),
)


def patch_failures(
    cases: Iterable[Line] = CASES, *, first: End = first, last: End = last, split: Split = divmod
) -> list[str]:
    """The outputs in which the convolution over patches is another polynomial, one for each case."""
    failures = []
    for line in cases:
        pixels, outputs = line.patch * line.patches, line.patch // line.stride
        names = [f"w{m}" for m in range(line.taps)] + [f"x{i}" for i in range(pixels)]
        domain, *symbols = ring(names, ZZ)
        weights, image = symbols[: line.taps], dict(enumerate(symbols[line.taps :]))
        tokens = {(i, v): image[i * line.patch + v] for i in range(line.patches) for v in range(line.patch)}
        kernel = {
            (u, *split(place(line, u, m), line.patch)): weights[m] for u, m in product(range(outputs), range(line.taps))
        }  # by output of a patch, patch and pixel in it: no two taps meet
        for i, u in product(range(line.patches), range(outputs)):
            reads = (line.stride * (i * outputs + u) + line.dilation * m - line.before for m in range(line.taps))
            expected = sum((w * image.get(p, domain.zero) for w, p in zip(weights, reads, strict=True)), domain.zero)
            found = sum(
                (
                    kernel.get((u, j, v), domain.zero) * tokens.get((i + j, v), domain.zero)
                    for j in range(first(line), last(line) + 1)
                    for v in range(line.patch)
                ),
                domain.zero,
            )
            if expected != found:
                failures.append(f"{line}: output {u} of patch {i} is {found}, not {expected}")
                break
    return failures


P, OWN, J, U, M = sympy.symbols("P I J u m", integer=True, nonnegative=True)
S, D, B = sympy.symbols("s d b", integer=True, nonnegative=True)


def index_failures(*, pixel: Callable[[Any, Any], Any] = lambda patch, inside: P * patch + inside) -> list[str]:
    """Whether output s (P / s I + u) + d m - b is pixel v of patch I + J, where s u + d m - b = P J + v."""
    outputs = P / S
    read = S * (outputs * OWN + U) + D * M - B
    inside = S * U + D * M - B - P * J  # v, by its definition
    return unequal(read, pixel(OWN + J, inside), "the pixel that is read minus that of the patch")


def count_failures(
    sizes: Iterable[tuple[int, int]] = tuple(product(range(1, 16, 2), range(1, 9))),
    *,
    count: Callable[[int, int], int] = lambda taps, patch: 2 * -(-(taps - 1) // (2 * patch)) + 1,
) -> list[str]:
    """List "same" convolutions with odd K that do not read exactly as many patches as the formula says."""
    failures = []
    for taps, patch in sizes:
        line = Line(taps, 1, 1, (taps - 1) // 2, patch, 1)
        read = {place(line, u, m) // patch for u in range(patch) for m in range(taps)}
        if len(read) != count(taps, patch) or read != set(range(first(line), last(line) + 1)):
            failures.append(f"K = {taps}, P = {patch}: the patches {sorted(read)} are read, not {count(taps, patch)}")
    return failures


@claim(
    status=Status.INSTANCES,
    scope="The image's sides are multiples of the patch's $P$, the stride $s$ divides $P$, and there is one output "
    "for every $s$ pixels. $b$ pixels of zeros, or of the other end, stand before each axis. The formula of "
    "$K'$ is for odd $K$, stride 1, no dilation and $b = (K - 1)/2$.",
    source="new; Li et al. 2021 (arXiv 2111.01353) state such a theorem, of which the abstract alone was read",
    justifies=("convert/attention/patches.py: patch_attention, patch_kernel",),
    tests=(
        "proofs/claims/test_patches.py: test_the_kernel_of_the_code_is_that_of_the_proof",
        "convert/attention/test_patches.py: test_attention_over_patches_is_the_convolution_bit_for_bit",
    ),
)
def patch_tokens() -> Checks:
    r"""A convolution of pixels is a convolution of patches.

    Unshuffling makes $P^2$ channels of each, one for each pixel of a patch; shuffling is its inverse, for patches of
    $P / s$ outputs a side. With a convolution of stride 1 over patches,

    ```math
    \mathrm{Conv}_K(x) = \mathrm{shuffle}\, \mathrm{Conv}'_{K'}(\mathrm{unshuffle}\, x), \qquad
    K' = 2 \left\lceil \frac{K - 1}{2 P} \right\rceil + 1 \text{ on each axis.}
    ```

    **Proof.** Axes do not mix. For output $u$ of a patch and tap $m$, divide with remainder: $s u + d m - b = P J + v$
    with $0 \le v < P$. So tap $m$ reads, for output $u$ of any patch $I$, pixel $v$ of patch $I + J$; zeros around the
    image are patches of zeros. The kernel over patches has $W_m$ at $(u, v, J)$; for one $u$, different taps read
    different pixels, so no two meet. The first tap of output $0$ and the last one of output $P/s - 1$ read the
    outermost patches,

    ```math
    \left\lfloor \frac{-b}{P} \right\rfloor \le J \le \left\lfloor \frac{P - s + d (K - 1) - b}{P} \right\rfloor ,
    ```

    which for $s = d = 1$ and $b = (K - 1)/2$ are $K'$. Attention has a head for each of them (`head-assembly`).
    """
    yield Check("output $u$ of patch $I$ reads pixel $v$ of patch $I + J$", index_failures)
    yield Check(
        "both sides are the same polynomial in weights and pixels", patch_failures, f"{len(CASES)} convolutions"
    )
    yield Check(
        'a "same" convolution reads $K\'$ patches, and no fewer',
        count_failures,
        "odd $K$ from 1 to 15, $P$ from 1 to 8",
    )
