"""The tail of a whole kernel: what neighbouring heads lose to each other, they give back. For ``convert.tail``.

Per head, the tail is attained; over heads it is not, because the triangle inequality forgets the signs. Here the heads
are added up first, as if all of Z^2 were keys, and what the border of an image changes is bounded separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import product

import sympy

from conv2attn.proofs.claim import Check, Claim, Formula, Kind, Step
from conv2attn.proofs.decide import Expr, not_nonnegative, unequal
from conv2attn.proofs.geometry import Pixel

COUNTS = (2, 3, 5)
KERNELS = ((2, 2), (1, 3))
MARGIN = 1  # points of the lattice around the kernel, in the cases that are counted
SHARES = (Fraction(1, 9), Fraction(4, 5))
HALF = sympy.Rational(1, 2)


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
    added = change or (lambda p, share: (1 / share - 1) * p)
    failures = []
    for is_target in (0, 1):
        failures += unequal(p / share - is_target, (p - is_target) + added(p, share), f"d = {is_target}")
    failures += unequal(added(share, share), 1 - share if total is None else total(share), "the sum of the changes")
    return failures + not_nonnegative((share + rest) - share, "P of a larger key set minus P")


def universe_failures(
    kernels: Iterable[Pixel] = KERNELS, *, border: int = 1, shares: Iterable[Fraction] = SHARES
) -> list[str]:
    """Whether the bound holds, on a finite lattice, for every key grid around a kernel and weights -1 and 1."""
    failures = []
    for (rows, columns), q in product(kernels, shares):
        taps = list(product(range(rows), range(columns)))
        lattice = list(product(range(-MARGIN, rows + MARGIN), range(-MARGIN, columns + MARGIN)))
        span = _Changes(taps, lattice, taps, q)
        for grid in _grids(rows, columns):
            inside = _Changes(taps, grid, grid, q)
            for weights in product((-1, 1), repeat=len(taps)):
                allowed = span.total(weights) + border * span.outside(weights)
                if inside.total(weights) > allowed:
                    failures.append(
                        f"{rows}x{columns} taps {weights}, q = {q}, {len(grid)} keys: {allowed} is exceeded"
                    )
    return failures[:5]


class _Changes:
    """Heads with their softmax over some points: what their weighted changes sum to."""

    def __init__(self, taps: list[Pixel], points: list[Pixel], kernel: list[Pixel], q: Fraction) -> None:
        self.changes: list[dict[Pixel, Fraction]] = []
        self.shares: list[Fraction] = []
        for tap in taps:
            weights = {z: q ** ((z[0] - tap[0]) ** 2 + (z[1] - tap[1]) ** 2) for z in points}
            total = sum(weights.values(), Fraction(0))
            self.changes.append({z: w / total - (z == tap) for z, w in weights.items()})
            self.shares.append(sum((weights[z] for z in kernel), Fraction(0)) / total)

    def total(self, weights: Iterable[int]) -> Fraction:
        """sum over points of |sum over heads of weight times change|."""
        pairs = list(zip(weights, self.changes, strict=True))
        sums = (sum((w * change[z] for w, change in pairs), Fraction(0)) for z in self.changes[0])
        return sum(map(abs, sums), Fraction(0))

    def outside(self, weights: Iterable[int]) -> Fraction:
        """sum over heads of |weight| (1 - P_h)."""
        return sum((abs(w) * (1 - share) for w, share in zip(weights, self.shares, strict=True)), Fraction(0))


def _grids(rows: int, columns: int) -> Iterator[list[Pixel]]:
    """All key grids between the kernel and the lattice."""
    ends = list(product(range(MARGIN + 1), repeat=2))
    for (top, bottom), (left, right) in product(ends, repeat=2):
        yield list(product(range(-top, rows + bottom), range(-left, columns + right)))


def claims() -> list[Claim]:
    """The sharper error bound."""
    return [
        Claim(
            name="smoothed-kernel",
            title="What heads lose to each other does not count",
            statement=Formula(
                r"|\operatorname{Attention} - \operatorname{Conv}|_o \le \sum_c \frac{\operatorname{osc}_c}{2} \Bigl("
                r"\sum_{z \in \mathbb{Z}^2} \Bigl| \sum_h W_{o,c,h} u_h(z) \Bigr| + \sum_h (1 - P_h) |W_{o,c,h}|"
                r"\Bigr),\quad u_h(z) = p_h(z) - [z = t_h]",
                "|Attention - Conv|_o <= sum_c osc_c / 2 ( sum_{z in Z^2} |sum_h W_{o,c,h} u_h(z)| + sum_h (1 - P_h) "
                "|W_{o,c,h}| ), u_h(z) = p_h(z) - [z = t_h], p_h(z) = q_h^(|z - t_h|^2) / theta_3(q_h)^2, and P_h the "
                "sum of p_h over the rectangle that the kernel spans.",
            ),
            assumptions=(
                "X is finite.",
                "The heads sit at the kernel's taps; every head may have its own alpha_h > 0.",
                "The keys are a rectangle of Z^2 that contains every point between the kernel's taps.",
            ),
            steps=_steps(),
            checks=(
                Check("weights that sum to 0 see half of osc", Kind.SYMBOLIC, balance_failures),
                Check("what a border changes, and that it sums to 1 - P_h", Kind.SYMBOLIC, border_failures),
                Check(
                    "the bound holds for every key grid on a finite lattice, in fractions",
                    Kind.INSTANCES,
                    universe_failures,
                    cases=tuple(
                        f"{rows}x{columns} taps with weights -1 and 1; {MARGIN} more key or none on each side; q = "
                        + ", ".join(map(str, SHARES))
                        for rows, columns in KERNELS
                    ),
                ),
            ),
            justifies=("conv2attn.convert.tail.softmax_tail",),
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
            "The difference is linear in x, and each head's probabilities sum to 1.",
        ),
        Step(
            Formula(
                r"\sum_k g_k x_k = \sum_k g_k (x_k - m) \le \frac{\operatorname{osc}}{2} \sum_k |g_k|",
                "sum_k g_k x_k = sum_k g_k (x_k - m) <= osc / 2 sum_k |g_k|, m in the middle of the range",
            ),
            "The g_k sum to 0, and |x_k - m| <= osc / 2. Equality for x_k at the end of the range that g_k points to.",
        ),
        Step(
            Formula(
                r"p^{(h)}_k - [k = t_h] = u_h(k) + \Bigl(\frac{1}{P} - 1\Bigr) p_h(k),\quad P = \sum_{k} p_h(k)",
                "p^(h)_k - [k = t_h] = u_h(k) + (1 / P - 1) p_h(k), with P the sum of p_h over the keys",
            ),
            "A softmax over some of the points of Z^2 is that over all of them, divided by the share of these points.",
        ),
        Step(
            Formula(
                r"\sum_k |g_{c,k}| \le \sum_k \Bigl|\sum_h W_{o,c,h} u_h(k)\Bigr| + \sum_h |W_{o,c,h}| (1 - P)",
                "sum_k |g_{c,k}| <= sum_k |sum_h W_{o,c,h} u_h(k)| + sum_h |W_{o,c,h}| (1 - P)",
            ),
            "The triangle inequality; (1 / P - 1) P = 1 - P.",
        ),
        Step(
            Formula(
                r"\sum_k \le \sum_{z \in \mathbb{Z}^2},\quad 1 - P \le 1 - P_h",
                "sum_k <= sum_{z in Z^2}, and 1 - P <= 1 - P_h",
            ),
            "All terms are positive, and the keys contain the rectangle that the kernel spans. What is left does not "
            "depend on the image.",
        ),
    )
