"""How many heads equal a convolution exactly, with finite scores: one more than the rank, with content or without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import sympy
from sympy import QQ

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Status, claim
from .head_count import SHAPE, shifts
from .head_dimension import exact, rank
from .head_mixtures import KERNELS, Heads, Kernel, with_values
from .nonnegative import column_basis

SIZES = ((2, 3), (3, 3))
KEY_COUNTS = (2, 3)
HALF = QQ(1, 2)


def finite_heads(kernel: Kernel, size: tuple[int, int], epsilon: Any) -> Heads:
    """Heads 1 and 1 + epsilon sum_Delta b_Delta P_Delta, scaled, for a basis b, and the values that give P U."""
    P, basis = shifts(size, SHAPE), column_basis(kernel)
    ones = [QQ(1)] * len(P[0])
    scaled = [[epsilon / max(map(abs, b)) * entry for entry in b] for b in basis]
    pairs = list(zip(*P, strict=True))
    tilted = [[1 + sum(x * y for x, y in zip(b, pair, strict=True)) for pair in pairs] for b in scaled]
    return with_values([ones, *tilted], exact(P).transpose() * exact(kernel))


def attained_failures(
    sizes: Iterable[tuple[int, int]] = SIZES, *, epsilon: Any = HALF, most: Callable[[int], int] = lambda rank: rank + 1
) -> list[str]:
    """Whether rank U + 1 heads with positive entries, each row of a head with the same sum, give the convolution."""
    failures = []
    for (name, kernel), size in product(KERNELS.items(), sizes):
        if not any(map(any, kernel)):
            continue
        attention, values = finite_heads(kernel, size, epsilon)
        if attention * values != exact(shifts(size, SHAPE)).transpose() * exact(kernel):
            failures.append(f"{name}, {size}: the heads give something else")
        for column in attention.transpose().to_list():
            keys = size[0] * size[1]
            rows = {sum(column[start : start + keys]) for start in range(0, len(column), keys)}
            if min(column) <= 0 or len(rows) != 1:
                failures.append(f"{name}, {size}: not a softmax of finite scores: {column}")
        if attention.shape[1] > most(rank(kernel)):
            failures.append(f"{name}, {size}: {attention.shape[1]} heads")
    return failures[:5]


def positive_failures(sizes: Iterable[tuple[int, int]] = SIZES) -> list[str]:
    """Whether some (query, key) pair is 0 in all shifts, so that no positive matrix is a combination of them."""
    full = [size for size in sizes if all(any(entries) for entries in zip(*shifts(size, SHAPE), strict=True))]
    return [f"{size}: every key of every query is a tap" for size in full]


def linear_failures(counts: Iterable[int] = KEY_COUNTS, *, extra: Expr = 0) -> list[str]:
    """Whether d/de of sum_k softmax_k(s + e c + e^2 d) (e x_k) w at e = 0 is sum_k softmax_k(s) x_k w, plus extra.

    s are the scores of the blank image; c and d are any changes by content.
    """
    failures = []
    e, w = sympy.symbols("e w")
    for count in counts:
        s, c, d, x = (sympy.symbols(f"{name}1:{count + 1}", real=True) for name in "scdx")
        powers = [sympy.exp(a + e * b + e**2 * g) for a, b, g in zip(s, c, d, strict=True)]
        output = sum(p * e * value * w for p, value in zip(powers, x, strict=True)) / sum(powers)
        blank = [sympy.exp(a) for a in s]
        expected = sum(p * value * w for p, value in zip(blank, x, strict=True)) / sum(blank)
        failures += unequal(sympy.diff(output, e).subs(e, 0), expected + extra, f"{count} keys")
    return failures


@claim(
    status=Status.INSTANCES,
    scope=r"Exact arithmetic. Head $h$ computes $\operatorname{softmax}(S_h(X)) X W_h$ with scores that are finite, "
    r"and continuous in $X$ at the blank image $X = 0$; they may see the content, as those of the draft's eq. "
    r"(7) do. From below: some query reads all its taps, and has one more key, inside the image. (Without that "
    r"key, $\operatorname{rank} U$ heads are still needed.) From above: every target is a key, and the values "
    r"depend on the number of keys. $U \ne 0$ as for `head-count`.",
    tests=("proofs/claims/test_sharper.py: test_softmax_of_finite_scores_equals_a_convolution_with_one_head_more",),
    is_lemma=True,
)
def head_count_exact() -> Checks:
    r"""Equality with finite scores takes one head more than the rank.

    A layer that equals the convolution for all images has at least $\operatorname{rank} U + 1$ heads, even if they see
    the content; and $\operatorname{rank} U + 1$ heads that see positions alone equal it for all images of one size.

    **Proof.** *From below.* The convolution is linear but for its bias, which is the layer's output for the blank
    image, so it equals the layer's linear part there, in which the content does not count:

    ```math
    \lim_{\varepsilon \to 0} \frac{1}{\varepsilon} \sum_h \operatorname{softmax}(S_h(\varepsilon X))\, \varepsilon X W_h
    = \sum_h A_h X W_h , \qquad A_h = \operatorname{softmax}(S_h(0)) > 0 .
    ```

    So $N_h \ge \operatorname{rank} U$ as for `head-count`. With equality the $\operatorname{vec} A_h$ would be a basis
    of the columns of $P U$. But these are 0 at a key that is no tap, where $A_h$ is positive.

    *From above.* Let $b_1, \dots, b_r$ be a basis of the column space of $U$ and $n$ the number of keys. Head 0 has
    equal scores; head $i$ has the score $\ln(1 + \varepsilon b_{i,\Delta})$ at tap $\Delta$ and 0 elsewhere, with
    $\varepsilon$ so small that this is finite. With $s_i = n + \varepsilon \sum_\Delta b_{i,\Delta}$,

    ```math
    A_0 = \frac{1}{n}\, 1 1^\top , \qquad
    A_i = \frac{1}{s_i} \Bigl( 1 1^\top + \varepsilon \sum_\Delta b_{i,\Delta} P_\Delta \Bigr) , \qquad
    \sum_\Delta b_{i,\Delta} P_\Delta = \frac{1}{\varepsilon} (s_i A_i - n A_0) ,
    ```

    so they span the columns of $P U$. The smaller $\varepsilon$, the larger the values. $\square$
    """
    sizes = " and ".join(f"{rows}x{columns}" for rows, columns in SIZES)
    yield Check(
        r"$\operatorname{rank} U + 1$ heads with finite scores give the convolution, in fractions",
        attained_failures,
        f"the kernels of 2x2 taps on {sizes} keys",
    )
    yield Check("a key that is no tap is 0 in all shifts", positive_failures, f"2x2 taps on {sizes} keys")
    yield Check("a head's linear part at the blank image does not see the content", linear_failures, "2 and 3 keys")
