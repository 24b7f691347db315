"""Heads assemble the convolution: the construction of ``layer/construction.py``, with symbols for all numbers.

The attention sum is written out as it stands in the theorem: every query, every head, every key, with the one-hot
limit of the softmax. It equals the convolution as a polynomial in the weights, the biases and the pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import sympy

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.small import (
    Axis,
    Case,
    Keys,
    Positions,
    Score,
    attention,
    convolution_of,
    head_center,
    middle,
    one_hot,
    padded_keys,
    place,
    query_position,
    score,
    symbols,
)

STRIDE, DILATION, OUTPUT, TAP, MIDDLE_TAP = sympy.symbols("s d i m m_0", integer=True, nonnegative=True)
KERNEL_SIZE = sympy.Symbol("K", integer=True, positive=True)
AXIS = Axis(sympy.Symbol("L", integer=True), KERNEL_SIZE, STRIDE, DILATION)
QUERY, TARGET = place(AXIS, OUTPUT, MIDDLE_TAP), place(AXIS, OUTPUT, TAP)
CENTER = DILATION * (TAP - MIDDLE_TAP)

CASES = (
    Case.sized((3, 4), (1, 1)),
    Case.sized((4, 4), (3, 3)),
    Case.sized((3, 4), (3, 3), pads=((1, 1), (1, 1))),
    Case.sized((3, 4), (2, 3), channels=(2, 2)),
    Case.sized((3, 4), (2, 2), pads=((0, 1), (0, 1))),  # "same" with an even kernel
    Case.sized((3, 4), (4, 1), pads=((1, 2), (0, 0))),
    Case.sized((3, 4), (3, 2), stride=(2, 1), pads=((1, 1), (1, 1)), channels=(1, 2)),
    Case.sized((4, 4), (2, 2), stride=(2, 3)),
    Case.sized((4, 4), (1, 1), stride=(3, 2)),  # a stride larger than the kernel
    Case.sized((3, 4), (2, 3), dilation=(2, 1), pads=((1, 1), (1, 1))),
    Case.sized((3, 4), (3, 2), dilation=(1, 3)),
    Case.sized((3, 4), (4, 3), stride=(2, 1), dilation=(2, 3), pads=((3, 3), (2, 2))),
    Case.sized((2, 3), (2, 2), stride=(1, 2), dilation=(2, 2), pads=((2, 2), (2, 2)), channels=(2, 1)),
    Case.sized((3, 3), (3, 3), pads=((1, 1), (1, 1)), channels=(2, 2), groups=2),  # depthwise
    Case.sized((2, 4), (1, 2), channels=(2, 2), groups=1),
    Case.sized((4, 3), (2, 1), stride=(2, 2), channels=(2, 4), groups=2),
    *(Case.sized((3, 4), (3, 3), pads=((1, 1), (1, 1)), mode=mode) for mode in ("reflect", "replicate", "circular")),
    *(Case.sized((2, 3), (2, 3), pads=((0, 1), (2, 2)), mode=mode) for mode in ("reflect", "replicate", "circular")),
    Case.sized(
        (3, 4),
        (2, 2),
        stride=(2, 1),
        dilation=(1, 2),
        pads=((1, 1), (2, 2)),
        mode="circular",
        channels=(2, 2),
        groups=2,
    ),
)
OTHER_AXES = (  # one and three of them
    Case.sized((7,), (3,), stride=(2,), dilation=(2,)),
    Case.sized((6,), (2,), dilation=(3,)),
    Case.sized((3, 3, 4), (2, 1, 2), stride=(1, 1, 2)),
    Case.sized((4, 3, 3), (2, 2, 1), stride=(1, 1, 2), dilation=(2, 1, 1)),
)


def assembly_failures(
    cases: Iterable[Case] = CASES,
    *,
    query: Positions = query_position,
    center: Positions = head_center,
    score: Score = score,
    keys: Keys = padded_keys,
) -> Failures:
    """The outputs in which one-hot attention and convolution differ as polynomials."""
    for case in cases:
        s = symbols(case, sympy.QQ)
        expected = convolution_of(case, s)
        found = attention(case, s, partial(one_hot, score=score, keys=keys), query=query, center=center)
        for output, polynomial in expected.items():
            if polynomial != found[output]:
                yield f"{case}: output {output} is {found[output]}, the convolution's {polynomial}"


def inside_failures(*, slack: int = 0, query: Expr = QUERY, middle: Callable[[Expr], Expr] = middle) -> Failures:
    """Fails unless q + Delta = s i + d m, and queries and targets lie in 0, ..., P - 1 - slack, for all sizes.

    Symbols that are at least 0 write out i <= o - 1 and m <= K - 1; P is d (K - 1) + 1 + s (o - 1) and what the stride
    leaves over. The middle tap is one of the taps, so what holds of q for every tap m in the place of m0 holds for it.
    """
    yield from unequal(query + CENTER, TARGET, "query plus centre minus target")
    later, others, remainder = sympy.symbols("o_later K_later r", integer=True, nonnegative=True)
    last_key = STRIDE * (OUTPUT + later) + DILATION * (TAP + others) + remainder
    for what, position in (("target", TARGET), ("query", query.subs(MIDDLE_TAP, TAP))):
        yield from not_nonnegative(position, what)
        yield from not_nonnegative(last_key - slack - position, f"last key minus {what}")
    half = sympy.Symbol("half", integer=True, nonnegative=True)
    for taps in (2 * half + 1, 2 * half + 2):  # every K is odd or even
        found = sympy.simplify(middle(taps))
        yield from not_nonnegative(found, f"m0 for K = {taps}")
        yield from not_nonnegative(taps - 1 - found, f"K - 1 - m0 for K = {taps}")


@claim(
    status=Status.COQ,
    scope=r"Exact arithmetic. Convolutions along $n$ axes, of every kernel, stride, dilation, number of groups and "
    r"bias, padded with zeros, by reflection, replication or wrapping around, unevenly too; the keys are all "
    r"pixels of the padded input, and values have no bias. $D_p \ge n + 1$, $D_k \ge n + 1$ with the identity matrix "
    r"for $\hat W_{key}$, or $D_k \ge 1$ with a matrix for each head; at least as many heads as taps, at "
    r"most $\min(D_h, D_{out})$ output channels. Images of every size with values of at most $B$.",
    source="Theorem 1 of the article and the talk, for every stride, dilation, padding and group",
    justifies=(
        "convert/layer/construction.py: attention_from_conv",
        "convert/spec.py: ConvSpec.query_positions, ConvSpec.tap_offsets",
    ),
    coq=(
        "TheoremN.v: theorem_1_padded, theorem_1_whole, theorem_1_every_key_dimension",
        "Theorem1.v: theorem_1_limit, theorem_1_exists",
        "Padding.v: padded_within_bounds",
    ),
    tests=("proofs/claims/test_assembly.py", "convert/engines/test_equivalence.py"),
)
def head_assembly() -> Checks:
    r"""Theorem 1: multi-head self-attention expresses every convolution.

    For every convolution, every $B$ and every $\varepsilon > 0$ there is an $\alpha_0$ such that for all
    $\alpha \ge \alpha_0$ and all images the layer with one head for each tap $m$ of the kernel differs from the
    convolution by less than $\varepsilon$, at every output. On each axis, with stride $s$, dilation $d$ and $K$ taps,
    query $i$ and the centre of the head are

    ```math
    q = {=QUERY}, \qquad \Delta_m = {=CENTER}, \qquad m_0 = {=middle(KERNEL_SIZE)},
    ```

    and the head's value and output projections multiply to the kernel's slice $W_m$.

    **Proof.** The head of tap $m$ has its highest score at the key $q + \Delta_m = {=TARGET}$, the pixel that the tap
    reads (`encoding-identity`, `unique-maximum`); the centres count from the query, so where it sits changes nothing.
    That pixel is a key: a padded axis of $P$ pixels has $o = \lfloor (P - d (K - 1) - 1) / s \rfloor + 1$ outputs, so

    ```math
    0 \le {=TARGET} \le s (o - 1) + d (K - 1) \le P - 1 ,
    ```

    and likewise $0 \le q \le P - 1$, since $m_0$ is a tap. Hence the head's probabilities tend to one-hot at that key
    as $\alpha \to \infty$ (`one-hot-limit`), at a rate that depends neither on the image nor on its size
    (`tail-bound`), and the layer's output tends to

    ```math
    b + \sum_h W_{\Delta_h} \sum_k [k = q + \Delta_h]\, x_k = b + \sum_m W_m\, x_{{=TARGET}} ,
    ```

    which is the convolution. With groups $W_m$ is block diagonal, which the sum does not notice. $\square$
    `error-bound` says how large $\alpha_0$ is. Without the padding's keys the nearest pixels would share the
    attention: `padded-keys`.
    """
    yield Check("every query and every target lies inside the padded input, for all sizes", inside_failures)
    yield Check(
        "one-hot attention and convolution are the same polynomial in weights, biases and pixels",
        assembly_failures,
        f"{len(CASES)} convolutions of images",
    )


@claim(
    status=Status.INSTANCES,
    scope="One-hot heads; the keys are the pixels of the padded input, along one and three axes.",
    justifies=("convert/spec.py: ConvSpec.tap_offsets, ConvSpec.query_positions",),
    tests=("proofs/claims/test_dimensions.py",),
    is_lemma=True,
)
def dimension_assembly(*, query: Positions = query_position, center: Positions = head_center) -> Checks:
    r"""The theorem along one and three axes.

    The layer of `head-assembly` has $K_1 \cdots K_n$ heads along $n$ axes: queries and centres are the same along each
    axis, and the score is a sum over axes.
    """
    yield Check(
        "attention with symbolic weights and pixels is the convolution",
        lambda: assembly_failures(OTHER_AXES, query=query, center=center),
        f"{len(OTHER_AXES)} convolutions in 1-D and 3-D",
    )
