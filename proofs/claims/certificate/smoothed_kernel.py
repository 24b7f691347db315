"""The tail of a whole kernel: what neighbouring heads lose to each other, they give back. For ``bounds/tail.py``.

Per head, the tail is attained; over heads it is not, because the triangle inequality forgets the signs. Here the heads
are added up first, as if all of Z^n were keys, and what the border of an image changes is bounded separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy

from ...prover.decide import Expr, not_nonnegative, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import fill
from ..common.lattice import LISTED, RANDOM, Kernel, differences, grids_around, iv, smoothed_bound, tested_kernels

COUNTS = (2, 3, 5)
HALF = sympy.Rational(1, 2)
_P, _SHARE = sympy.symbols("p P", positive=True)


def change_at_a_border(p: Expr, share: Expr) -> Expr:
    """(1 / P - 1) p."""
    return (1 / share - 1) * p


def balance_failures(counts: Iterable[int] = COUNTS, *, factor: Expr = HALF) -> list[str]:
    """Whether sum_k g_k x_k <= factor osc sum |g_k| if the g_k sum to 0, with equality for some x."""
    failures = []
    middle, osc, size, slack = (sympy.Symbol(n, nonnegative=n != "m", real=True) for n in ("m", "osc", "g", "s"))
    for count in counts:
        g, x = (sympy.symbols(f"{name}1:{count + 1}", real=True) for name in "gx")
        total = dict(zip(g[-1:], [-sum(g[:-1])], strict=True))
        shifted = sum(a * (b - middle) for a, b in zip(g, x, strict=True)) - sum(
            a * b for a, b in zip(g, x, strict=True)
        )
        failures += unequal(shifted.subs(total), 0, f"{count} keys: what a shift of x changes")
    for sign in (1, -1):  # |x - m| <= osc / 2: sign (x - m) = osc / 2 - s
        term = (sign * size) * (sign * (osc / 2 - slack))
        failures += not_nonnegative(factor * osc * size - term, f"sign {sign}: bound minus term")
        failures += unequal(factor * osc * size, term.subs(slack, 0), f"sign {sign}: the extreme case")
    return failures


def border_failures(*, change: Callable[[Expr, Expr], Expr] | None = None, total: Expr | None = None) -> list[str]:
    """Whether p / P - d = (p - d) + change for a target (d = 1) and others, the changes summing to 1 - P."""
    p, share, rest = sympy.symbols("p P r", positive=True)
    added = change or change_at_a_border
    failures = []
    for is_target in (0, 1):
        failures += unequal(p / share - is_target, (p - is_target) + added(p, share), f"d = {is_target}")
    failures += unequal(added(share, share), 1 - share if total is None else total(share), "the sum of the changes")
    return failures + not_nonnegative((share + rest) - share, "P of a larger key set minus P")


def bound_failures(kernels: Iterable[Kernel] | None = None, *, border: int = 1, half: Expr = HALF) -> list[str]:
    """Whether the worst input of every key grid is within the bound, for an input with osc = 1, in interval arithmetic.

    The worst input has the error osc / 2 sum_k |g_k|: equality in the claim's second step.
    """
    failures = []
    for kernel in tested_kernels() if kernels is None else kernels:
        allowed = smoothed_bound(kernel, border=border) * int(half.p) / int(half.q)
        for grid in grids_around(kernel):
            worst = sum(map(abs, differences(kernel, grid)), iv.mpf(0)) / 2
            if not worst.b <= allowed.a:
                failures.append(f"{kernel}, {len(grid)} keys: {worst.b} exceeds {allowed.a}")
    return failures[:5]


def claims() -> list[Claim]:
    """The sharper error bound."""
    return [
        Claim(
            name="smoothed-kernel",
            title="What a head loses to its neighbours, they give back",
            statement=Formula(
                r"|\operatorname{Attention} - \operatorname{Conv}|_o \le \sum_c \frac{\operatorname{osc}_c}{2} \Bigl("
                r"\sum_{z \in \mathbb{Z}^n} \Bigl| \sum_h W_{o,c,h} u_h(z) \Bigr| + \sum_h (1 - P_h) |W_{o,c,h}|"
                r"\Bigr),\quad u_h(z) = p_h(z) - [z = t_h]",
                "|Attention - Conv|_o <= sum_c osc_c / 2 ( sum_{z in Z^n} |sum_h W_{o,c,h} u_h(z)| + sum_h (1 - P_h) "
                "|W_{o,c,h}| ), u_h(z) = p_h(z) - [z = t_h], p_h(z) = q_h^(|z - t_h|^2) / theta_3(q_h)^n, and P_h the "
                "sum of p_h over the box that the kernel spans.",
            ),
            assumptions=(
                "$X$ is finite.",
                "The heads sit at the kernel's taps; every head may have its own $alpha_h > 0$.",
                "The keys are a box of $Z^n$, for any number $n$ of axes, that contains every point between the "
                "kernel's taps.",
            ),
            steps=_steps(),
            checks=(
                Check("weights that sum to 0 see half of $osc$", Kind.SYMBOLIC, balance_failures),
                Check("what a border changes, and that it sums to $1 - P_h$", Kind.SYMBOLIC, border_failures),
                Check(
                    "the worst input is within the bound, summed over all of $Z^n$, in interval arithmetic",
                    Kind.INSTANCES,
                    bound_failures,
                    cases=(
                        *map(str, LISTED),
                        f"{RANDOM} random kernels along one and two axes, of 1 to 3 taps each, dilations 1 to 3, "
                        "integer weights, every head with its own $alpha$ from 3/4 to 5; key grids "
                        "with 0 to 3 more pixels on each side",
                    ),
                ),
            ),
            justifies=("conv2attn.convert.bounds.tail.softmax_tail",),
            tests=(
                "convert.certificate.test_tightness.test_no_input_exceeds_the_tail_at_any_pixel_in_exact_arithmetic",
                "convert.certificate.test_tightness.test_the_worst_case_reaches_a_third_of_the_tail",
                "proofs.formal.test_formal_bridge.test_the_certificate_of_several_taps_is_at_least_a_proved_bound_for_each_channel",
            ),
            formal=(
                "SmoothedKernel.smoothed_kernel",
                "SmoothedKernel.certified_tail",
            ),
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"(\operatorname{Attention} - \operatorname{Conv})_o = \sum_c \sum_k g_{c,k} x_{c,k},\quad"
                r" g_{c,k} = \sum_h W_{o,c,h} \bigl(p^{(h)}_k - [k = t_h]\bigr),\quad \sum_k g_{c,k} = 0",
                "(Attention - Conv)_o = sum_c sum_k g_{c,k} x_{c,k}, g_{c,k} = sum_h W_{o,c,h} (p^(h)_k - [k = t_h]), "
                "sum_k g_{c,k} = 0",
            ),
            "The difference is linear in $x$, and each head's probabilities sum to 1.",
        ),
        Step(
            Formula(
                r"\sum_k g_k x_k = \sum_k g_k (x_k - m) \le \frac{\operatorname{osc}}{2} \sum_k |g_k|",
                "sum_k g_k x_k = sum_k g_k (x_k - m) <= osc / 2 sum_k |g_k|, m in the middle of the range",
            ),
            "The $g_k$ sum to 0, and $|x_k - m| <= osc / 2$. Equality for $x_k$ at the end of the range that $g_k$ "
            "points to.",
        ),
        Step(
            fill(
                r"p^{(h)}_k - [k = t_h] = u_h(k) + $change,\quad p = p_h(k),\ P = \sum_{k} p_h(k)",
                "p^(h)_k - [k = t_h] = u_h(k) + $change, with p = p_h(k) and P the sum of p_h over the keys",
                change=change_at_a_border(_P, _SHARE),
            ),
            "A softmax over some of the points of $Z^n$ is that over all of them, divided by the share of these "
            "points.",
        ),
        Step(
            Formula(
                r"\sum_k |g_{c,k}| \le \sum_k \Bigl|\sum_h W_{o,c,h} u_h(k)\Bigr| + \sum_h |W_{o,c,h}| (1 - P)",
                "sum_k |g_{c,k}| <= sum_k |sum_h W_{o,c,h} u_h(k)| + sum_h |W_{o,c,h}| (1 - P)",
            ),
            "The triangle inequality; $(1 / P - 1) P = 1 - P$.",
        ),
        Step(
            Formula(
                r"\sum_k \le \sum_{z \in \mathbb{Z}^n},\quad 1 - P \le 1 - P_h",
                "sum_k <= sum_{z in Z^n}, and 1 - P <= 1 - P_h",
            ),
            "All terms are positive, and the keys contain the box that the kernel spans. What is left does not "
            "depend on the image.",
        ),
    )
