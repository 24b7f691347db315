"""The tail: how far soft attention can be from the convolution in exact arithmetic. For ``convert/bounds/tail.py``.

With q = exp(-alpha), a key at squared distance m from the target weighs q^m against the target's 1. The keys are
some of the points of Z^n, so all weights together are at most theta_3(q)^n, whatever the image size. The bounds of
theta_3 are those of one axis; what n axes make of them is one of Bernoulli's inequalities.

For a head this tail is attained; for a whole kernel it is not, because the triangle inequality forgets the signs: what
neighbouring heads lose to each other, they give back. The last claim adds the heads up first, as if all of Z^n were
keys, and bounds separately what the border of an image changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product

import sympy

from ...prover.checks import Expr, has_negative_coefficient, nonnegative, not_nonnegative, on_unit_interval, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.lattice import (
    LISTED,
    RANDOM,
    Kernel,
    differences,
    gaussian_heads,
    grids_around,
    smoothed_bound,
    tested_kernels,
)
from ..common.scores import squared_distance
from ..common.small import points
from ..theorem.one_hot import Q

OTHER_KEYS = (1, 2, 3, 5, 8)
TAU = sympy.Symbol("tau", nonnegative=True)


def lemma_failures(counts: Iterable[int] = OTHER_KEYS, *, factor: Expr = 1) -> Failures:
    """Fails unless sum_k p_k x_k - x_t <= factor (1 - p_t) osc, with equality for some x; so it is with -x for x."""
    x_t, osc = sympy.Symbol("x_t", real=True), sympy.Symbol("osc", positive=True)
    for count in counts:
        p, slack = (sympy.symbols(f"{name}1:{count + 1}", nonnegative=True) for name in "ps")
        bound = factor * sum(p) * osc
        others = sum(p_k * (x_t + osc - s) for p_k, s in zip(p, slack, strict=True))  # x_k - x_t <= osc
        error = (1 - sum(p)) * x_t + others - x_t
        yield from not_nonnegative(bound - error, f"{count} other keys: bound minus error")
        yield from unequal(bound, error.subs(dict.fromkeys(slack, 0)), f"{count} other keys: the extreme case")


@claim(
    status=Status.COQ,
    scope=r"Exact arithmetic. The layer of `head-assembly`, with an $\alpha_h > 0$ for each head; the keys are all "
    r"pixels of the padded input, along $n$ axes. The input $X$ is finite, and $\mathrm{osc}_c$ is the largest "
    r"minus the smallest value of channel $c$ of the padded input: zeros of the padding count.",
    justifies=("convert/bounds/tail.py: softmax_tail, tail_per_unit",),
    coq=(
        "TheoremN.v: theorem_1_n_per_head, theorem_1_n",
        "Theorem1.v: theorem_1_per_head, theorem_1",
        "Softmax.v: softmax_read",
    ),
    tests=(
        "proofs/claims/test_factorisation.py",
        "convert/engines/test_equivalence.py",
        "proofs/formal/test_formal_bridge.py",
    ),
)
def error_bound(*, tail: Expr = TAU) -> Checks:
    r"""Soft attention is at most its tail away from the convolution.

    With the tail $\tau_n$ of `tail-bound`, for every output channel $o$ and at every query,

    ```math
    \bigl|\operatorname{Attention}_\alpha(X) - \operatorname{Conv}_W(X)\bigr|_o
    \le \sum_c \operatorname{osc}_c \sum_h \tau_n(\alpha_h)\, |W_{o, c, \Delta_h}| .
    ```

    **Proof.** The biases cancel, and the convolution reads the target $t_h = q + \Delta_h$ of each head, so the
    difference is the sum over heads and channels of $W_{o, c, \Delta_h}$ times what the head misreads. Its
    probabilities $p_k$ sum to 1; hence

    ```math
    \Bigl|\sum_k p_k x_k - x_t\Bigr| = \Bigl|\sum_{k \ne t} p_k (x_k - x_t)\Bigr|
    \le (1 - p_t) \operatorname{osc} \le \tau_n \operatorname{osc} ,
    ```

    where the first inequality is an equality if $x_k - x_t = \mathrm{osc}$ for all $k \ne t$. The triangle inequality
    over heads and channels gives the bound. If all heads share $\alpha$, then $\tau_n(\alpha)$ comes out of the sum.
    """
    keys = ", ".join(str(count + 1) for count in OTHER_KEYS)
    yield Check(
        "what a head misreads is at most $(1 - p_t)$ times $\\mathrm{osc}$, attained", lemma_failures, f"{keys} keys"
    )
    size, osc, slack, before, rest = sympy.symbols("w osc s R r", nonnegative=True)  # R: sum of |w_i| osc_i so far
    errors = (TAU * before - rest) + size * (TAU * osc - slack)  # so far, and w e where e has the sign of w
    yield nonnegative(
        "one more head or channel adds at most $\\tau |w|$ times its $\\mathrm{osc}$",
        tail * (before + size * osc) - errors,
    )


GRIDS = ((1,), (7,), (1, 1), (1, 4), (3, 2), (3, 5), (6, 6), (1, 2, 3), (3, 2, 3), (2, 2, 2, 2))

N = sympy.Symbol("n", integer=True, positive=True)
MAJORANT = (1 + Q) / (1 - Q)
SHARP_BOUND = 1 - ((1 - Q) / (1 + Q)) ** N
SIMPLE_BOUND = 2 * N * Q / (1 + Q)
FIRST_ORDER = 2 * N


def partial_tail(q: Expr, terms: int, *, axes: Expr = 2) -> Expr:
    """1 - theta^-axes with the series of theta_3 cut after q^(terms^2); grows with ``terms`` towards tau."""
    return 1 - 1 / (1 + 2 * sum(q ** (n * n) for n in range(1, terms + 1))) ** axes


CUT = partial_tail(Q, 1, axes=N)


def majorant_failures(*, exponent: Callable[[Expr], Expr] = lambda n: n**2, majorant: Expr = MAJORANT) -> Failures:
    """Fails unless 1 + 2 sum_{n >= 1} q^exponent(n) is at most the majorant for 0 < q < 1."""
    m = sympy.Symbol("m", integer=True, nonnegative=True)
    partial = Q * (1 - Q**m) / (1 - Q)  # q + ... + q^m
    yield from not_nonnegative(exponent(1 + m) - (1 + m), "exponent(n) - n at n = 1 + m")
    yield from unequal(partial.subs(m, 0), 0, "the empty geometric sum")
    yield from unequal(partial.subs(m, m + 1) - partial, Q ** (m + 1), "one more term of the geometric sum")
    infinite = partial.subs(Q**m, 0)  # q^m tends to 0
    yield from unequal(majorant, 1 + 2 * infinite, "the majorant")


def bound_failures(
    *,
    majorant: Expr = MAJORANT,
    sharp: Expr = SHARP_BOUND,
    simple: Expr = SIMPLE_BOUND,
    first_order: Expr = FIRST_ORDER,
) -> Failures:
    """Fails unless 1 - majorant^-n = sharp <= simple <= first_order q, and tau / q -> first_order, for every n >= 1.

    sharp <= simple by induction: equal for one axis, and from n axes to one more the difference simple - sharp becomes
    (1 - r) times itself, plus r (simple - its value for no axis), with r = 1 - majorant^-1 between 0 and 1.
    """
    missed = 1 - 1 / majorant  # r: of one axis
    yield from unequal(1 - majorant**-N, sharp, "1 - majorant^-n")
    rest = simple - sharp
    yield from unequal(rest.subs(N, 1), 0, "the simple bound minus the sharp one, for one axis")
    kept = (1 - missed) * rest + missed * simple
    yield from unequal(rest.subs(N, N + 1), kept, "their difference for one more axis")
    for part in (missed, 1 - missed, missed * simple, first_order * Q - simple):
        yield from has_negative_coefficient(on_unit_interval(part, Q), f"{part}, q = 1 / (1 + s)")
    for enclosing in (CUT, sharp):  # theta_3 is at least 1 + 2 q, at most the majorant
        yield from unequal(sympy.diff(enclosing, Q).subs(Q, 0), first_order, f"slope of {enclosing} at q = 0")
        yield from unequal(enclosing.subs(Q, 0), 0, f"{enclosing} at q = 0")


def lattice_counts(largest: int, *, axes: int = 2) -> Counter[int]:
    """Coefficients of theta_3(q)^axes up to q^largest: in how many ways m is a sum of ``axes`` squares."""
    squares = [n * n for n in range(-largest, largest + 1) if n * n <= largest]
    return Counter(total for total in map(sum, product(squares, repeat=axes)) if total <= largest)


def grid_failures(grids: Iterable[tuple[int, ...]] = GRIDS, *, fewer: int = 0) -> Failures:
    """Fails unless the sum for every target of these boxes is, power by power of q, at most theta_3(q)^(n - fewer)."""
    for size in grids:
        keys = points(size)
        lattice = lattice_counts(sum(length**2 for length in size), axes=len(size) - fewer)
        for target in keys:
            counts = Counter(squared_distance(key, target) for key in keys)
            more = {m: count for m, count in counts.items() if count > lattice[m]}
            yield from [f"{size} keys, target {target}: {n} at squared distance {m}" for m, n in more.items()]


@claim(
    status=Status.COQ,
    scope=r"$\alpha > 0$ and $q = e^{-\alpha}$. The keys are a box of $\mathbb{Z}^n$ of any size, $n \ge 1$, with the "
    r"target $t$ among them; the scores are those of `encoding-identity`, up to a constant.",
    justifies=("convert/bounds/tail.py: tail_fraction, softmax_tail",),
    coq=(
        "Box.v: box_tail, tau_n_bounds",
        "Grid.v: grid_tail, grid_tail_simple",
        "Theta.v: tau_bounds",
        "Enclosure.v: tau_enclosed",
    ),
    tests=("proofs/claims/test_tail.py", "proofs/formal/test_formal_bridge.py"),
    is_lemma=True,
)
def tail_bound() -> Checks:
    r"""The attention that misses the target is bounded for all image sizes at once.

    With $\vartheta_3(q) = \sum_{m \in \mathbb{Z}} q^{m^2}$,

    ```math
    1 - p_t \le \tau_n = 1 - \vartheta_3(q)^{-n} \le {=SIMPLE_BOUND} \le {=FIRST_ORDER * Q} .
    ```

    **Proof.** Moving $t$ to the origin maps the keys one-to-one into $\mathbb{Z}^n$, and all terms are positive. So

    ```math
    \frac{1}{p_t} = \sum_k q^{|k - t|^2} \le \sum_{z \in \mathbb{Z}^n} q^{|z|^2} = \vartheta_3(q)^n, \qquad
    \vartheta_3(q) \le 1 + 2 \sum_{m \ge 1} q^m = {=MAJORANT} ,
    ```

    the latter since $m^2 \ge m$. Hence $\tau_n \le {=SHARP_BOUND}$, which is at most ${=SIMPLE_BOUND}$ by Bernoulli's
    inequality. $\square$

    Algebra adds to what Coq has that ${=FIRST_ORDER}$ is the best constant: $\vartheta_3(q) \ge 1 + 2 q$ gives
    $\tau_n \ge {=CUT}$, which also is ${=FIRST_ORDER * Q}$ to first order.
    """
    yield Check("$m^2 \\ge m$ and the geometric series bound $\\vartheta_3$", majorant_failures)
    yield Check("the chain of bounds for $0 < q < 1$ and every $n$, and the limit of $\\tau_n / q$", bound_failures)
    yield Check(
        "the sum for every target is a part of $\\vartheta_3(q)^n$", grid_failures, f"{len(GRIDS)} boxes of keys"
    )


HALF = sympy.Rational(1, 2)
PROBABILITY, SHARE = sympy.symbols("p P", positive=True)
CHANGE = (1 / SHARE - 1) * PROBABILITY  # what a border adds to a probability
CHANGES = 1 - SHARE  # their sum


def range_failures(*, factor: Expr = HALF) -> Failures:
    """Fails unless |sum_k d_k x_k| <= |m| |sum_k d_k| + factor osc sum |d_k| if |x_k - m| <= osc / 2, attained."""
    d, x, m = sympy.symbols("d x m", real=True)
    yield from unequal(d * x, m * d + d * (x - m), "splitting off the middle of the range")
    osc, size, slack = sympy.symbols("osc d s", nonnegative=True)
    term = size * (osc / 2 - slack)  # d (x - m), where x - m <= osc / 2 has the sign of d
    yield from not_nonnegative(factor * osc * size - term, "bound minus term")
    yield from unequal(factor * osc * size, term.subs(slack, 0), "the extreme case")


def border_failures(*, change: Expr = CHANGE, total: Expr = CHANGES) -> Failures:
    """Fails unless p / P - d = (p - d) + change for a target (d = 1) and others, the changes summing to 1 - P."""
    p, rest = PROBABILITY, sympy.Symbol("r", positive=True)
    yield from unequal(change.subs(p, SHARE), total, "the sum of the changes")
    for is_target in (0, 1):
        yield from unequal(p / SHARE - is_target, (p - is_target) + change, f"d = {is_target}")
    yield from not_nonnegative((SHARE + rest) - SHARE, "P of a larger key set minus P")


def smoothed_bound_failures(kernels: Iterable[Kernel] | None = None, *, border: int = 1, half: Expr = HALF) -> Failures:
    """Fails unless the worst input with osc = 1 of every key grid is within the bound, in interval arithmetic.

    The worst input has the error osc / 2 sum_k |g_k|.
    """
    for kernel in tested_kernels() if kernels is None else kernels:
        allowed = smoothed_bound(kernel, border=border) * int(half.p) / int(half.q)
        for grid in grids_around(kernel):
            worst = sum(map(abs, differences(gaussian_heads(kernel), kernel.by_target, grid).values())) / 2
            if not worst.b <= allowed.a:
                yield f"{kernel}, {len(grid)} keys: {worst.b} exceeds {allowed.a}"


@claim(
    status=Status.COQ,
    scope=r"As for `error-bound`, with at least one tap along each axis: the keys are a box of $\mathbb{Z}^n$ that "
    r"contains the box that the kernel spans. $V$ is any finite set of points of $\mathbb{Z}^n$ with the targets "
    r"among them.",
    justifies=("convert/bounds/tail.py: softmax_tail",),
    coq=("SmoothedKernel.v: smoothed_kernel, certified_tail",),
    tests=("convert/certificate/test_tightness.py", "proofs/formal/test_formal_bridge.py"),
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
        smoothed_bound_failures,
        f"{len(LISTED)} listed and {RANDOM} random kernels, each with 5 boxes of keys",
    )
