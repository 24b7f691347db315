"""Justifies what ``convert/bounds/rounding.py`` adds for underflow, and where it says that nothing overflows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import product

import sympy

from ...prover.checks import positive_form
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.sums import folded, gamma, round_to, shapes

PRECISION = 4
SMALLEST = Fraction(1)  # lambda
TERMS = 4
SLACK = sympy.Symbol("s", positive=True)
ADDITION = 4  # what an addition loses, in lambda
EACH = 1 + ADDITION  # a term, with its product

Numbers = tuple[Fraction, ...]
Change = Callable[[Fraction], Fraction]


def flush(value: Fraction) -> Fraction:
    """0 in place of a subnormal number."""
    return value if abs(value) >= SMALLEST else Fraction()


def keep(value: Fraction) -> Fraction:
    """A subnormal number as the nearest multiple of the smallest one."""
    step = SMALLEST / 2 ** (PRECISION - 1)
    return value if abs(value) >= SMALLEST else round(value / step) * step


READ: tuple[Change, ...] = (Fraction, flush)
MODES = tuple(product(READ, (keep, flush)))  # how operands are read, and results are written


def computed(shape: object, pairs: Iterable[tuple[Fraction, Fraction]], read: Change, write: Change) -> list[Fraction]:
    """The sum of the products w x in this order, after all other products and partial sums."""
    found = []

    def rounded(value: Fraction) -> Fraction:
        found.append(write(round_to(value, PRECISION)))
        return found[-1]

    products = [rounded(read(w) * read(x)) for w, x in pairs]
    folded(shape, iter(products), lambda left, right: rounded(read(left) + read(right)))
    return found


def cases() -> Iterator[tuple[Numbers, Numbers]]:
    """Weights and inputs of some bits, normal and subnormal, huge and small, of both signs."""
    step = SMALLEST / 2 ** (PRECISION - 1)
    huge, one, just_normal, subnormal = 2**9 * Fraction(9), Fraction(11, 8), SMALLEST, 7 * step
    weights = ((subnormal, one, -subnormal, just_normal), (one, one, one, -one), (subnormal,) * TERMS)
    inputs = ((huge, subnormal, huge, one), (-subnormal, subnormal, huge, -just_normal), (subnormal,) * TERMS)
    yield from product(weights, inputs)


def order_failures(
    *, flushed: int = 1, inputs: int = 1, each: int = EACH, factor: Fraction = Fraction(1), partial: int = 1
) -> Failures:
    """Fails unless every order of a sum stays within the bound, and no partial sum exceeds what overflow is judged by.

    The arguments multiply sum |w||x| over subnormal weights, lambda sum |w|, lambda of each term, all of these
    together, and (1 + gamma) sum |w||x| for partial sums.
    """
    grown = gamma(TERMS, Fraction(1, 2**PRECISION))
    for (weights, x), (read, write), shape in product(cases(), MODES, shapes(TERMS)):
        products = [w * v for w, v in zip(weights, x, strict=True)]
        absolute = sum(map(abs, products))
        lost = flushed * sum(abs(p) for p, w in zip(products, weights, strict=True) if abs(w) < SMALLEST)
        lost += SMALLEST * (inputs * sum(map(abs, weights)) + each * TERMS)
        found = computed(shape, zip(weights, x, strict=True), read, write)
        largest, lost = max(map(abs, found)), factor * (1 + grown) * lost
        if abs(found[-1] - sum(products)) > grown * absolute + lost:
            yield f"weights {weights}, inputs {x}, order {shape}: an error of {found[-1] - sum(products)}"
        if largest > partial * (1 + grown) * absolute + lost:
            yield f"weights {weights}, inputs {x}, order {shape}: a partial sum of {largest}"


@claim(
    status=Status.INSTANCES,
    scope=r"$\lambda$ is the smallest normal number, $m u < 1$ and $u \le 1/2$; products and sums are rounded to "
    r"nearest, in any order, and may be fused. Any operation may read a subnormal operand as 0; a result below "
    r"$\lambda$ may be written as 0, or rounded to a subnormal number. Coq has the case in which none is taken "
    r"for 0.",
    justifies=("convert/bounds/rounding.py: attention_rounding, convolution_rounding",),
    coq=("ExactRegime.v: side_error, result_at_most", "Overflow.v: small_sums_are_finite"),
    tests=("convert/bounds/test_extremes.py",),
)
def underflow_errors(*, addition: int = ADDITION) -> Checks:
    r"""The error that underflow adds to a sum, and a condition under which nothing overflows.

    ```math
    \Bigl|\mathrm{fl}\Bigl(\sum_i w_i x_i\Bigr) - \sum_i w_i x_i\Bigr| \le \gamma_m \sum_i |w_i||x_i|
    + (1 + \gamma_m) \Bigl(\sum_{|w_i| < \lambda} |w_i||x_i| + \lambda \sum_i |w_i| + {=EACH}\, m \lambda\Bigr) ,
    ```

    and no partial sum exceeds $(1 + \gamma_m) \sum_i |w_i||x_i|$ by more than the second summand. Nothing overflows
    where their sum is below the largest number.

    **Proof.** A weight below $\lambda$ that is read as 0 loses the product, however large $x_i$ is. For other weights,
    an input that is read as 0 loses less than $\lambda |w_i|$, and a product that is written as 0 less than $\lambda$.
    An addition errs by $u |a + b| + {=ADDITION} \lambda$: each operand may lose $\lambda$, which changes what the
    rounding may lose by at most $2 u \lambda \le \lambda$, and the result may lose $\lambda$. With $m$ products and
    $m - 1$ additions, less than

    ```math
    \sum_{|w_i| < \lambda} |w_i||x_i| + \lambda \sum_i |w_i| + m \lambda + {=ADDITION}\, (m - 1) \lambda
    ```

    is lost, and goes through at most $m$ more roundings (`rounded-sum`). A partial sum is a sum of some of the
    products, so it obeys the same bound. $\square$
    """
    sums, modes = len(list(cases())), len(MODES)
    unit = 1 / (2 * (1 + SLACK))  # below 1/2; both operands and the result lose lambda, for each operand u lambda more
    yield positive_form(f"an addition loses at most ${ADDITION} \\lambda$", addition - 3 - 2 * unit)
    yield Check(
        "both bounds hold",
        order_failures,
        f"{sums} sums of {TERMS} products of {PRECISION} bits, every order, {modes} ways to flush operands and results",
    )
