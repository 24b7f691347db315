"""Spare heads: what heads beside those of the taps add, at 0 and trained; in front of them, the non-local block.

A spare head may look anywhere, by content or position: here its probabilities are any numbers. The layer of
``assembly.py`` has symbols for all weights and pixels, and so have the heads beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import sympy
from sympy.polys.rings import ring

from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import Point
from ..common.small import Case, Element, Entries, attention, convolution_of, entries, pad, padded_keys

CASES = (
    Case.sized((3, 3), (2, 2), channels=(1, 2)),
    Case.sized((3, 2), (3, 2), stride=(2, 1), pads=((1, 1), (0, 1)), channels=(2, 2), groups=2),
    Case.sized((4,), (2,), dilation=(2,), channels=(2, 1)),
)
IDENTITIES = (Case.sized((2, 3), (1, 1), channels=(2, 2)), Case.sized((4,), (1,), channels=(3, 3)))
HEADS = 2


def spare_symbols(case: Case, heads: int) -> tuple[Entries, dict[Point, Element]]:
    """Symbols for a convolution's numbers, and for the spare heads': p, W_val and W_out of each, by head and entry.

    Keys: ("p", head, output, key) is the attention that an output's query pays to a key, ("v", head, channel) a row of
    W_val with D_h = 1, and ("z", head, output channel) of W_out.
    """
    counted = entries(case, int)
    size = len(counted.weight) + len(counted.bias) + len(counted.image)
    outputs, inputs = range(case.channels[1]), range(case.channels[0])
    names: list[Any] = [
        *(("p", h, output, key) for h in range(heads) for output in case.outputs for key in padded_keys(case)),
        *(("v", h, c) for h in range(heads) for c in inputs),
        *(("z", h, o) for h in range(heads) for o in outputs),
    ]
    _, *symbols = ring([f"s{number}" for number in range(size + len(names))], sympy.QQ)
    drawn = iter(symbols)
    return entries(case, drawn.__next__), dict(zip(names, drawn, strict=True))


def spare_output(case: Case, s: Entries, own: dict[Point, Element], heads: int) -> dict[Point, Element]:
    """sum_j W_out^j sum_k p^j_k W_val^j x_k, by (output channel, *output)."""
    values, found = pad(case, s), dict.fromkeys(convolution_of(case, s), s.zero)
    for o, *output in found:
        for h in range(heads):
            for key in padded_keys(case):
                read = sum((own["v", h, c] * values[c, *key] for c in range(case.channels[0])), s.zero)
                found[o, *output] += own["z", h, o] * own["p", h, tuple(output), key] * read
    return found


def with_heads(case: Case, s: Entries, own: dict[Point, Element], heads: int) -> dict[Point, Element]:
    """The layer of K^n + M heads, one after the other: those of the taps, then the spare ones."""
    spare = spare_output(case, s, own, heads)
    return {place: found + spare[place] for place, found in attention(case, s).items()}


def spare_failures(cases: Iterable[Case] = CASES, *, start: int = 0, missing: int = 0) -> Failures:
    """The outputs that are not the convolution plus what the heads give, or, with W_out = start, the convolution.

    Args:
        cases: The convolutions.
        start: The value of W_out before training.
        missing: Heads that the sum leaves out.
    """
    for case in cases:
        s, own = spare_symbols(case, HEADS)
        expected, given = convolution_of(case, s), spare_output(case, s, own, HEADS - missing)
        found = with_heads(case, s, own, HEADS)
        begun = {name: start * (value**0) if name[0] == "z" else value for name, value in own.items()}
        first = with_heads(case, s, begun, HEADS)
        for place, polynomial in expected.items():
            if found[place] != polynomial + given[place]:
                yield f"{case}: trained, output {place} is {found[place]}"
            if first[place] != polynomial:
                yield f"{case}: at the start, output {place} is {first[place]}, the convolution's {polynomial}"


def block_failures(cases: Iterable[Case] = IDENTITIES, *, residual: int = 1, heads: int = 1) -> Failures:
    """The outputs in which an identity with a spare head is not x + W_out sum_k p_k W_val x_k, the non-local block.

    Args:
        cases: Convolutions of one tap.
        residual: Factor of x in the block.
        heads: Spare heads of the layer; the block has one.
    """
    for case in cases:
        s, own = spare_symbols(case, heads)
        one = s.zero + 1
        weight = {(o, c, *tap): one if o == c else s.zero for o, c, *tap in s.weight}
        layer = replace(s, weight=weight, bias=[s.zero] * case.channels[1])
        found = with_heads(case, layer, own, heads)
        for (o, *pixel), polynomial in found.items():
            block = residual * s.image[o, *pixel]
            for key in padded_keys(case):
                read = sum((own["v", 0, c] * s.image[c, *key] for c in range(case.channels[0])), s.zero)
                block += own["z", 0, o] * own["p", 0, tuple(pixel), key] * read
            if polynomial != block:
                yield f"{case}: output {(o, *pixel)} is {polynomial}, the block's {block}"


@claim(
    status=Status.COQ,
    scope="Exact arithmetic; heads with any scores, of content and position, over the layer's keys, and any number of "
    "them. In floating point the sum is exact as well, since 0 times a finite number is 0: infinities and NaN are left "
    "out.",
    source="Theorem 1 of the article, which asks for at least as many heads as taps",
    justifies=("convert/layer/spare.py: WithSpareHeads",),
    coq=("SpareHeads.v: spare_heads_add, spare_heads_at_0, theorem_1_with_spare_heads",),
    tests=(
        "convert/layer/test_spare.py: test_a_layer_with_spare_heads_has_the_bits_and_strides_of_its_convolution",
        "convert/network/test_graft.py: test_step_0_is_the_cnn_bit_for_bit",
    ),
)
def spare_heads(*, start: int = 0, missing: int = 0) -> Checks:
    r"""Heads beside those of the taps add what they give through $W_{out}$: exactly 0 where it is 0.

    With $M$ more heads $j$, of probabilities $p^j_k$ that may depend on the image,

    ```math
    \text{layer}(x)_q = \Bigl( b + \sum_m W_m x_{q + \Delta_m} \Bigr)
        + \sum_{j = 1}^{M} W_{out}^j \sum_k p^j_k(q)\, W_{val}^j x_k .
    ```

    **Proof.** The output projection of concatenated heads is the sum of the heads, each times its rows of $W_{out}$.
    The heads of the taps give the convolution (`head-assembly`), and no spare head enters their scores or values. Where
    $W_{out}^j = 0$ its term is 0 whatever $p^j$ and $W_{val}^j$ are, and so is its derivative in $x$, $W_{qry}$,
    $W_{key}$ and $W_{val}$; that in $W_{out}^j$ is what the head reads, so training can begin. $\square$
    """
    yield Check(
        "the layer is the convolution plus the spare heads as a polynomial in all of them, and with $W_{out} = 0$ it "
        "is the convolution",
        lambda: spare_failures(start=start, missing=missing),
        f"{len(CASES)} convolutions, {HEADS} spare heads",
    )


@claim(
    status=Status.INSTANCES,
    scope="As `spare-heads`, for the kernel of one tap whose slice is the identity matrix.",
    source="Wang, Girshick, Gupta and He, Non-local neural networks, CVPR 2018, eq. (6)",
    justifies=("convert/layer/spare.py: WithSpareHeads",),
    tests=("convert/layer/test_spare.py: test_heads_in_front_attend_to_the_pixels_of_the_unpadded_input_by_content",),
)
def identity_with_spare_heads(*, residual: int = 1, heads: int = 1) -> Checks:
    r"""An identity with one spare head is the non-local block.

    ```math
    z_q = x_q + W_{out} \sum_k \operatorname{softmax}_k\bigl( (W_{qry} x_q)^\top W_{key} x_k \bigr)\, W_{val} x_k ,
    ```

    the block in its embedded Gaussian form, whose last projection starts at 0. So a layer with spare heads in front of
    its taps is that block and then the convolution: `head-assembly` for a kernel of one tap, `spare-heads`, and
    `head-assembly` again.
    """
    yield Check(
        "the layer of one tap with the identity and a spare head is the block, as a polynomial",
        lambda: block_failures(residual=residual, heads=heads),
        f"{len(IDENTITIES)} identities",
    )
