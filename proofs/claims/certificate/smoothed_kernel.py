"""The tail of a whole kernel: what neighbouring heads lose to each other, they give back. For ``bounds/tail.py``.

Per head, the tail is attained; over heads it is not, because the triangle inequality forgets the signs. Here the heads
are added up first, as if all of Z^n were keys, and what the border of an image changes is bounded separately.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Status, claim
from ..common.lattice import LISTED, RANDOM, Kernel, differences, grids_around, iv, smoothed_bound, tested_kernels

HALF = sympy.Rational(1, 2)
PROBABILITY, SHARE = sympy.symbols("p P", positive=True)
CHANGE = (1 / SHARE - 1) * PROBABILITY  # what a border adds to a probability
CHANGES = 1 - SHARE  # their sum


def range_failures(*, factor: Expr = HALF) -> list[str]:
    """Whether |sum_k d_k x_k| <= |m| |sum_k d_k| + factor osc sum |d_k| for |x_k - m| <= osc / 2, attained if m = 0."""
    d, x, m = sympy.symbols("d x m", real=True)
    failures = unequal(d * x, m * d + d * (x - m), "splitting off the middle of the range")
    osc, size, slack = sympy.symbols("osc d s", nonnegative=True)
    term = size * (osc / 2 - slack)  # d (x - m), where x - m <= osc / 2 has the sign of d
    failures += not_nonnegative(factor * osc * size - term, "bound minus term")
    return failures + unequal(factor * osc * size, term.subs(slack, 0), "the extreme case")


def border_failures(*, change: Expr = CHANGE, total: Expr = CHANGES) -> list[str]:
    """Whether p / P - d = (p - d) + change for a target (d = 1) and others, the changes summing to 1 - P."""
    p, rest = PROBABILITY, sympy.Symbol("r", positive=True)
    failures = unequal(change.subs(p, SHARE), total, "the sum of the changes")
    for is_target in (0, 1):
        failures += unequal(p / SHARE - is_target, (p - is_target) + change, f"d = {is_target}")
    return failures + not_nonnegative((SHARE + rest) - SHARE, "P of a larger key set minus P")


def bound_failures(kernels: Iterable[Kernel] | None = None, *, border: int = 1, half: Expr = HALF) -> list[str]:
    """Whether the worst input of every key grid is within the bound, for an input with osc = 1, in interval arithmetic.

    The worst input has the error osc / 2 sum_k |g_k|.
    """
    failures = []
    for kernel in tested_kernels() if kernels is None else kernels:
        allowed = smoothed_bound(kernel, border=border) * int(half.p) / int(half.q)
        for grid in grids_around(kernel):
            worst = sum(map(abs, differences(kernel, grid)), iv.mpf(0)) / 2
            if not worst.b <= allowed.a:
                failures.append(f"{kernel}, {len(grid)} keys: {worst.b} exceeds {allowed.a}")
    return failures[:5]


@claim(
    status=Status.COQ,
    scope=r"As for `error-bound`, with at least one tap along each axis: the keys are a box of $\mathbb{Z}^n$ that "
    r"contains the box that the kernel spans. $V$ is any finite set of points of $\mathbb{Z}^n$ with the targets "
    r"among them.",
    justifies=("convert/bounds/tail.py: softmax_tail",),
    coq=("SmoothedKernel.v: smoothed_kernel, certified_tail",),
    tests=(
        "convert/certificate/test_tightness.py: "
        "test_no_input_exceeds_the_tail_at_any_pixel_in_exact_arithmetic, "
        "test_the_worst_case_reaches_a_third_of_the_tail",
        "proofs/formal/test_formal_bridge.py: "
        "test_the_certificate_of_several_taps_is_at_least_a_proved_bound_for_each_channel",
    ),
)
def smoothed_kernel() -> Checks:
    r"""Neighbouring heads give back attention that a head loses to them.

    With $q_h = e^{-\alpha_h}$, let $p_h(z) = q_h^{|z - t_h|^2} / \vartheta_3(q_h)^n$ be the probability that head $h$
    would give the point $z$ if all of $\mathbb{Z}^n$ were keys, $p_h(V)$ its sum over $V$, $P_h$ its sum over the box
    that the kernel spans, and $u_h(z) = p_h(z) - [z = t_h]$. Then

    ```math
    |\operatorname{Attention} - \operatorname{Conv}|_o \le \sum_c \frac{\operatorname{osc}_c}{2} \Bigl(
    \sum_{z \in V} \Bigl| \sum_h W_{o,c,h}\, u_h(z) \Bigr|
    + \sum_h \bigl((1 - P_h) + (1 - p_h(V))\bigr) |W_{o,c,h}| \Bigr) ,
    ```

    for every image size. For each $c$ the smaller of this summand and that of `error-bound` may be taken. As $V$ grows
    to $\mathbb{Z}^n$, what it leaves out vanishes.

    **Proof.** The difference is linear in $x$: it is $\sum_c \sum_k g_{c,k} x_{c,k}$ with
    $g_{c,k} = \sum_h W_{o,c,h} (p^{(h)}_k - [k = t_h])$. As each head's probabilities sum to 1, $\sum_k g_{c,k} = 0$.
    Let $m$ be the middle of the channel's range. Since $|x_k - m| \le \mathrm{osc} / 2$,

    ```math
    \Bigl|\sum_k g_k x_k\Bigr| = \Bigl|m \sum_k g_k + \sum_k g_k (x_k - m)\Bigr|
    \le \frac{\operatorname{osc}}{2} \sum_k |g_k| ,
    ```

    with equality where each $x_k$ is at the end of the range that $g_k$ points to. A softmax over some points of
    $\mathbb{Z}^n$ is that over all of them, divided by the share ${=SHARE}$ of these points, so that
    $p^{(h)}_k - [k = t_h] = u_h(k) + {=CHANGE}$ with $p = p_h(k)$. What is added sums to ${=CHANGES}$ over the keys,
    at most $1 - P_h$ because they contain the box that the kernel spans. The triangle inequality gives the bound with
    the sum over the keys, which is at most the sum over $\mathbb{Z}^n$; and outside of $V$, where no target is,
    $|u_h| = p_h$ sums to $1 - p_h(V)$.
    """
    yield Check("weights that sum to 0 see half of the range", range_failures)
    yield Check("what a border changes, and its sum", border_failures)
    yield Check(
        "the worst input is within the bound, in interval arithmetic",
        bound_failures,
        f"{len(LISTED)} listed and {RANDOM} random kernels, each with 5 boxes of keys",
    )
