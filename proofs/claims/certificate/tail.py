"""How much of a head's attention can miss its target: the tail that ``bounds/tail.py`` relies on.

With q = exp(-alpha), a key at squared distance m from the target weighs q^m against the target's 1. The keys are
some of the points of Z^2, so all weights together are at most theta_3(q)^2, whatever the image size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product

import sympy

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import Expr, has_negative_coefficient, not_nonnegative, on_unit_interval, unequal
from ...prover.formula import fill
from ..theorem.one_hot import Q, squared_distance

GRIDS = ((1, 1), (1, 4), (3, 2), (3, 5), (6, 6))
POINTS = tuple(sympy.Rational(n, 64) for n in (1, 4, 16, 32, 48, 60))

MAJORANT = (1 + Q) / (1 - Q)
SHARP_BOUND = 4 * Q / (1 + Q) ** 2
SIMPLE_BOUND = 4 * Q / (1 - Q) ** 2
DIFFERENCE = 16 * Q**2 / (1 - Q**2) ** 2  # of the two
FIRST_ORDER = 4


def partial_tail(q: Expr, terms: int) -> Expr:
    """1 - theta^-2 with the series of theta_3 cut after q^(terms^2); grows with ``terms`` towards tau."""
    return 1 - 1 / (1 + 2 * sum(q ** (n * n) for n in range(1, terms + 1))) ** 2


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
    """Whether 1 - majorant^-2 = sharp, sharp <= simple, sharp <= first_order q, and tau / q -> first_order."""
    failures = unequal(1 - majorant**-2, sharp, "1 - majorant^-2")
    failures += unequal(simple - sharp, DIFFERENCE, "the weaker bound minus the sharp one")
    for upper in (simple, first_order * Q):
        failures += has_negative_coefficient(on_unit_interval(upper - sharp, Q), f"{upper} - {sharp}, q = 1 / (1 + s)")
    for enclosing in (partial_tail(Q, 1), sharp):  # theta_3 is at least 1 + 2 q, at most the majorant
        failures += unequal(sympy.limit(enclosing / Q, Q, 0), first_order, f"limit of {enclosing} over q")
    return failures


def lattice_counts(largest: int, *, axes: int = 2) -> Counter[int]:
    """Coefficients of theta_3(q)^axes up to q^largest: in how many ways m is a sum of ``axes`` squares."""
    squares = [n * n for n in range(-largest, largest + 1) if n * n <= largest]
    return Counter(total for total in map(sum, product(squares, repeat=axes)) if total <= largest)


def grid_failures(grids: Iterable[tuple[int, int]] = GRIDS, *, axes: int = 2) -> list[str]:
    """Whether the partition sum of every target of these grids is, power by power of q, at most theta_3(q)^axes."""
    failures = []
    for rows, columns in grids:
        keys = list(product(range(rows), range(columns)))
        lattice = lattice_counts(rows**2 + columns**2, axes=axes)
        for target in keys:
            counts = Counter(int(squared_distance(key, target)) for key in keys)
            failures += [
                f"{rows}x{columns}, target {target}: {count} keys at squared distance {m}, more than {lattice[m]}"
                for m, count in counts.items()
                if count > lattice[m]
            ]
    return failures


def value_failures(*, bound: Expr = SHARP_BOUND) -> list[str]:
    """Whether a rational lower bound of tau is at most the bound, at rational q."""
    lower = [(q, partial_tail(q, 8)) for q in POINTS]
    return [f"tau({q}) >= {float(tau):.6g} > {bound}" for q, tau in lower if not tau <= bound.subs(Q, q)]


_PARTS = {
    "majorant": MAJORANT,
    "sharp": SHARP_BOUND,
    "simple": SIMPLE_BOUND,
    "difference": DIFFERENCE,
    "first": FIRST_ORDER * Q,
    "squared": 1 - MAJORANT**-2,
    "cut": 1 - (1 + 2 * Q) ** -2,  # partial_tail(Q, 1)
}


def claims() -> list[Claim]:
    """The claims of this file."""
    return [_tail_bound()]


def _tail_bound() -> Claim:
    return Claim(
        name="tail-bound",
        title="A bound on the attention that misses the target, for any image size",
        statement=fill(
            r"1 - p_t \le \tau = 1 - \vartheta_3(q)^{-2} \le $sharp \le $simple,\quad q = e^{-\alpha}",
            "1 - p_t <= tau = 1 - theta_3(q)^-2 <= $sharp <= $simple, with q = exp(-alpha) and theta_3(q) = sum over "
            "all integers n of q^(n^2). Also tau <= $first, and 4 is the best constant.",
            **_PARTS,
        ),
        assumptions=(
            "$alpha > 0$, so $0 < q < 1$.",
            "The keys are finitely many points of $Z^2$, the target among them.",
        ),
        steps=_tail_steps(),
        checks=(
            Check(
                "$n^2 >= n$ and the geometric series give $theta_3 <= (1 + q)/(1 - q)$",
                Kind.SYMBOLIC,
                majorant_failures,
            ),
            Check("the chain of bounds for $0 < q < 1$, and $tau / q -> 4$ as $q -> 0$", Kind.SYMBOLIC, bound_failures),
            Check(
                "the partition sum of every target is part of the series $theta_3(q)^2$, for all $q$",
                Kind.INSTANCES,
                grid_failures,
                cases=tuple(f"{rows}x{columns} keys, every target" for rows, columns in GRIDS),
            ),
            Check(f"$tau$ is below the bounds at $q = {', '.join(map(str, POINTS))}$", Kind.EXACT, value_failures),
        ),
        justifies=(
            "conv2attn.convert.bounds.tail.tail_fraction",
            "conv2attn.convert.bounds.tail.softmax_tail",
        ),
        source="new",
        tests=(
            "proofs.claims.test_tail.test_the_tail_of_the_code_is_the_tail_of_the_proof",
            "proofs.formal.test_formal_bridge.test_the_tail_of_the_code_lies_on_the_formal_one",
        ),
        formal=(
            "Theta.tau_bounds",
            "Grid.grid_tail",
            "Grid.grid_tail_simple",
            "Enclosure.tau_enclosed",
        ),
    )


def _tail_steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"\frac{1}{p_t} = \sum_{k \in \mathcal{K}} q^{|k - t|^2} \le \sum_{z \in \mathbb{Z}^2} q^{|z|^2}"
                r" = \sum_{m} q^{m^2} \sum_{n} q^{n^2} = \vartheta_3(q)^2",
                "1 / p_t = sum_{k in keys} q^(|k - t|^2) <= sum_{z in Z^2} q^(|z|^2) = theta_3(q)^2",
            ),
            "$k -> k - t$ maps the keys one-to-one into $Z^2$, all terms are positive, and "
            "$q^(m^2 + n^2) = q^(m^2) q^(n^2)$.",
        ),
        Step(
            fill(
                r"\vartheta_3(q) = 1 + 2 \sum_{n \ge 1} q^{n^2} \le 1 + 2 \sum_{n \ge 1} q^n = $majorant",
                "theta_3(q) = 1 + 2 sum_{n >= 1} q^(n^2) <= 1 + 2 sum_{n >= 1} q^n = $majorant",
                **_PARTS,
            ),
            "$n^2 - n = n (n - 1) >= 0$ and $0 < q < 1$; then the geometric series.",
        ),
        Step(
            fill(
                r"1 - p_t \le 1 - \vartheta_3(q)^{-2} \le $squared = $sharp",
                "1 - p_t <= 1 - theta_3(q)^-2 <= $squared = $sharp",
                **_PARTS,
            ),
            "$x -> 1 - 1/x$ grows with $x > 0$.",
        ),
        Step(
            fill(r"$simple - $sharp = $difference \ge 0", "$simple - $sharp = $difference >= 0", **_PARTS),
            "So $4 q / (1 - q)^2$ is the weaker one: it exceeds 1 for $q > 3 - 2 sqrt 2$, while $4 q / (1 + q)^2$ "
            "never does.",
        ),
        Step(
            fill(r"$cut \le \tau \le $first", "$cut <= tau <= $first", **_PARTS),
            "$theta_3(q) >= 1 + 2 q$. Both sides are $4 q$ to first order, so no constant below 4 would do.",
        ),
    )
