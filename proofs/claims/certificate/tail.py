"""How much of a head's attention can miss its target: the tail that ``bounds/tail.py`` relies on.

With q = exp(-alpha), a key at squared distance m from the target weighs q^m against the target's 1. The keys are
some of the points of Z^n, so all weights together are at most theta_3(q)^n, whatever the image size. The bounds of
theta_3 are those of one axis; what n axes make of them is one of Bernoulli's inequalities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product

import sympy

from ...prover.checks import Expr, has_negative_coefficient, not_nonnegative, on_unit_interval, unequal
from ...prover.claim import Check, Checks, Status, claim
from ..theorem.one_hot import Q, squared_distance

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


def majorant_failures(*, exponent: Callable[[Expr], Expr] = lambda n: n**2, majorant: Expr = MAJORANT) -> list[str]:
    """Whether 1 + 2 sum_{n >= 1} q^exponent(n) is at most the majorant for 0 < q < 1."""
    m = sympy.Symbol("m", integer=True, nonnegative=True)
    partial = Q * (1 - Q**m) / (1 - Q)  # q + ... + q^m
    failures = not_nonnegative(exponent(1 + m) - (1 + m), "exponent(n) - n at n = 1 + m")
    failures += unequal(partial.subs(m, 0), 0, "the empty geometric sum")
    failures += unequal(partial.subs(m, m + 1) - partial, Q ** (m + 1), "one more term of the geometric sum")
    infinite = partial.subs(Q**m, 0)  # q^m tends to 0
    return failures + unequal(majorant, 1 + 2 * infinite, "the majorant")


def bound_failures(
    *,
    majorant: Expr = MAJORANT,
    sharp: Expr = SHARP_BOUND,
    simple: Expr = SIMPLE_BOUND,
    first_order: Expr = FIRST_ORDER,
) -> list[str]:
    """Whether 1 - majorant^-n = sharp <= simple <= first_order q, and tau / q -> first_order, for every n >= 1.

    sharp <= simple by induction: equal for one axis, and from n axes to one more the difference simple - sharp becomes
    (1 - r) times itself, plus r (simple - its value for no axis), with r = 1 - majorant^-1 between 0 and 1.
    """
    missed = 1 - 1 / majorant  # r: of one axis
    failures = unequal(1 - majorant**-N, sharp, "1 - majorant^-n")
    rest = simple - sharp
    failures += unequal(rest.subs(N, 1), 0, "the simple bound minus the sharp one, for one axis")
    kept = (1 - missed) * rest + missed * simple
    failures += unequal(rest.subs(N, N + 1), kept, "their difference for one more axis")
    for part in (missed, 1 - missed, missed * simple, first_order * Q - simple):
        failures += has_negative_coefficient(on_unit_interval(part, Q), f"{part}, q = 1 / (1 + s)")
    for enclosing in (CUT, sharp):  # theta_3 is at least 1 + 2 q, at most the majorant
        failures += unequal(sympy.diff(enclosing, Q).subs(Q, 0), first_order, f"slope of {enclosing} at q = 0")
        failures += unequal(enclosing.subs(Q, 0), 0, f"{enclosing} at q = 0")
    return failures


def lattice_counts(largest: int, *, axes: int = 2) -> Counter[int]:
    """Coefficients of theta_3(q)^axes up to q^largest: in how many ways m is a sum of ``axes`` squares."""
    squares = [n * n for n in range(-largest, largest + 1) if n * n <= largest]
    return Counter(total for total in map(sum, product(squares, repeat=axes)) if total <= largest)


def grid_failures(grids: Iterable[tuple[int, ...]] = GRIDS, *, fewer: int = 0) -> list[str]:
    """Whether the sum for every target of these boxes is, power by power of q, at most theta_3(q)^(n - fewer)."""
    failures = []
    for size in grids:
        keys = list(product(*map(range, size)))
        lattice = lattice_counts(sum(length**2 for length in size), axes=len(size) - fewer)
        for target in keys:
            counts = Counter(int(squared_distance(key, target)) for key in keys)
            more = {m: count for m, count in counts.items() if count > lattice[m]}
            failures += [f"{size} keys, target {target}: {n} at squared distance {m}" for m, n in more.items()]
    return failures


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
    tests=(
        "proofs/claims/test_tail.py: test_the_tail_of_the_code_is_the_tail_of_the_proof",
        "proofs/formal/test_formal_bridge.py: test_the_tail_of_the_code_lies_on_the_formal_one",
    ),
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
