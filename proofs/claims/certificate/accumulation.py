"""The error of adding up all keys, and keys that may be left out. For ``convert/bounds/rounding.py``."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, combinations, product
from typing import Any

import sympy

from ...prover.checks import Expr, nonnegative, positive_form
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.sums import added, folded, gamma, round_to, shapes

PRECISION = 4
LEAVES = 6
QUARTER = sympy.Rational(1, 4)
NEAR, UNIT, ABSOLUTE, FAR, SHARE = sympy.symbols("n u A F b", positive=True)


def before_errors(near: Any, unit: Any, absolute: Any, far: Any) -> Any:
    """b A = (n - 1) u A + 2 F: what additions lose if partial sums are no larger than A."""
    return (near - 1) * unit * absolute + 2 * far


def solved(share: Any) -> Any:
    """b / (1 - b): with partial sums of up to A and all errors."""
    return share / (1 - share)


def addition_errors(a: Fraction, b: Fraction, unit: Fraction, lost: Fraction) -> Fraction:
    """min(|a|, |b| + |fl(a) - a|, u |a + b|): what rounding a + b loses at most, for a number b."""
    return min(abs(a), abs(b) + lost, unit * abs(a + b))


def addition_failures(
    *, precision: int = PRECISION, bound: Callable[[Fraction, Fraction, Fraction, Fraction], Fraction] = addition_errors
) -> Failures:
    """Fails unless adding a short number to another, or to an unrounded product, errs by at most the bound."""
    unit = Fraction(1, 2**precision)
    significands = range(2 ** (precision - 1), 2**precision)
    terms = [*significands, *(Fraction(m * n, 2**precision) for m, n in combinations(significands, 2))]
    for a, n, shift, sign in product(map(Fraction, terms), significands, range(precision + 3), (1, -1)):
        b = sign * Fraction(n, 2**shift)
        error = abs(round_to(a + b, precision) - (a + b))
        if error > bound(a, b, unit, abs(round_to(a, precision) - a)):
            yield f"{a} + {b} errs by {error}"


def joining_failures(*, leaves: int = LEAVES, joins: Callable[[int], int] = lambda near: near - 1) -> Failures:
    """Fails unless in every order joins(n) additions join two partial sums that both hold some of n near terms."""
    for count in range(1, leaves + 1):
        for shape, chosen in product(shapes(count), product((False, True), repeat=count)):
            _, found = folded(shape, ((is_near, 0) for is_near in chosen), _joined)
            if any(chosen) and found != joins(sum(chosen)):
                yield f"{sum(chosen)} near terms of {count}, order {shape}: {found} additions join them"


def _joined(left: tuple[bool, int], right: tuple[bool, int]) -> tuple[bool, int]:
    """Whether a sum holds a near term, and how many of its additions join two that do; of those of its two parts."""
    return left[0] or right[0], left[1] + right[1] + (left[0] and right[0])


def sum_failures(*, leaves: int = LEAVES, factor: Fraction = Fraction(1)) -> Failures:
    """Fails unless every order of one near and some far terms stays within factor times the bound, exactly computed."""
    unit = Fraction(1, 2**PRECISION)
    terms = [Fraction(2**PRECISION - 1), *(Fraction(9 + n, 2 ** (PRECISION + n)) for n in range(leaves - 2))]
    whole, shares = sum(terms), before_errors(1, unit, sum(terms), sum(terms[1:]))
    allowed = factor * solved(shares / whole) * whole
    for shape, start in product(shapes(len(terms)), range(len(terms))):
        error = abs(added(shape, terms[start:] + terms[:start], PRECISION) - whole)
        if error > allowed:
            yield f"order {shape} from {start}: {error} > {allowed}"


@claim(
    status=Status.INSTANCES,
    scope=r"Floating-point numbers $a_k$, added in any order and rounded to nearest; at most $1 / (4 u)$ of them are "
    r"not 0. Any $n$ of them are called near, the others far; $F$ is the sum of $|a_k|$ over the far ones, $A$ "
    r"at least that over all, and $b < 1$. If the $a_k$ are products that are fused with their additions, which "
    r"is to round $a_k + s$ once, $A$ is at least $(1 + u) \sum_k |a_k|$, and $u \sum_k |a_k|$ is added to the "
    r"bound, as for products that are rounded first.",
    justifies=("convert/bounds/rounding.py: literal_error, weighing_keys",),
    tests=("convert/bounds/test_rounding.py",),
)
def key_accumulation(*, share: Expr = QUARTER, far: Expr = 2) -> Checks:
    r"""Adding up all keys errs by a bound without their number.

    ```math
    \Bigl|\mathrm{fl}\Bigl(\sum_k a_k\Bigr) - \sum_k a_k\Bigr| \le {=solved(SHARE)}\, A, \qquad
    b A = {=before_errors(NEAR, UNIT, ABSOLUTE, FAR)} .
    ```

    Zeros do not count, as adding 0 does not round. A key at distance $D$ of its head's target weighs exactly 0 where
    $e^{-\alpha D^2}$ rounds to 0 (`one-hot-threshold`), so the number of keys that count does not depend on the image;
    the code checks it.

    **Proof.** Let $s$ be a floating-point number, and $a$ one or a fused product. As $\mathrm{fl}(a + s)$ is the
    nearest number to $a + s$, it is no further away than the numbers $s$ and $\mathrm{fl}(a)$:

    ```math
    |\mathrm{fl}(a + s) - (a + s)| \le \min\bigl(|a|,\ |s| + |\mathrm{fl}(a) - a|,\ u\, |a + s|\bigr) ,
    ```

    and $\mathrm{fl}(a) = a$ unless $a$ is a fused product, whose share $|\mathrm{fl}(a) - a| \le u |a|$ is added to
    the bound, once for each product.

    Of all additions, $n - 1$ join two partial sums that both hold near terms. They err by at most
    $(n - 1) u (A + \text{error})$ together, as partial sums are at most $A$ and all errors. With $m u \le 1/4$ for the
    $m$ terms that are not 0, partial sums of far terms alone err by at most $\gamma_m F$, fused or not
    (`rounded-sum`), and $\gamma_m \le 1/3$. Each of them is joined to near terms once, with an error of at most
    itself: $(1 + \gamma_m) F$ together, so far terms add at most $2 F$. Hence

    ```math
    \text{error} \le (n - 1)\, u\, (A + \text{error}) + 2 F \le b\, (A + \text{error}) ,
    ```

    solved for the error. $\square$
    """
    yield Check(
        "what an addition errs by",
        addition_failures,
        f"numbers of {PRECISION} bits up to {PRECISION + 2} binades apart, and products of two",
    )
    yield Check("$n - 1$ additions join near terms", joining_failures, f"all orders and choices of 1 to {LEAVES} terms")
    lost = gamma(1, share / (1 + sympy.Symbol("s", positive=True)))  # among themselves, and once more when joined
    yield positive_form("far terms err by at most twice their weight, if $m u \\le 1/4$", far - lost - (1 + lost))
    yield Check(
        "the bound holds", sum_failures, f"one near and {LEAVES - 2} far terms of {PRECISION} bits, every order"
    )


FIRST, SECOND = sympy.symbols("e_1 e_2", nonnegative=True)
LOST = 1 - (1 - FIRST) * (1 - SECOND)  # what a product of two softmaxes leaves out
LENGTHS = (1, 4, 7)
RATIOS = (Fraction(1, 2), Fraction(1, 8))  # q = exp(-alpha)
UNITS = (Fraction(1, 2), Fraction(1, 64), Fraction(1, 4096))


def kept(probabilities: list[Fraction], most: Fraction) -> list[Fraction]:
    """The probabilities with zeros for the first and the last of them, as many as weigh no more than ``most``."""
    before = accumulate(probabilities)
    after = list(accumulate(reversed(probabilities)))[::-1]
    return [p if b > most and a > most else Fraction() for p, b, a in zip(probabilities, before, after, strict=True)]


def left_out_failures(*, share: Fraction = Fraction(1, 2), factor: Fraction = Fraction(1)) -> Failures:
    """Fails unless sums without the far keys, ``share`` of u on either side, differ by at most factor u max |x|.

    They differ most where all pixels have the same sign.
    """
    for length, q, unit in product(LENGTHS, RATIOS, UNITS):
        for target in range(length):
            weights = [q ** ((k - target) ** 2) for k in range(length)]
            probabilities = [weight / sum(weights) for weight in weights]
            lost = 1 - sum(kept(probabilities, share * unit))
            if lost > factor * unit:
                yield f"{length} keys, target {target}, q = {q}, u = {unit}: {lost} is lost"


@claim(
    status=Status.INSTANCES,
    scope=r"The $p_k$ are a softmax over the keys of two axes, computed exactly; kept ones stay as they are. Along "
    r"each axis the first keys and the last ones are left out, as many as weigh at most $u / 2$ on either side, "
    r"after the scale that the border asks for. So axis $i$ leaves out keys that weigh $e_i \le u$ together.",
    justifies=("convert/bounds/rounding.py: left_out", "convert/engines/factored.py: without_far_keys"),
    tests=("convert/engines/test_stencil.py", "convert/engines/test_axes.py"),
    is_lemma=True,
)
def left_out_keys(*, bound: Expr = FIRST + SECOND) -> Checks:
    r"""Keys that weigh next to nothing may be left out.

    ```math
    \Bigl|\sum_{k \text{ kept}} p_k x_k - \sum_k p_k x_k\Bigr|
    \le {=LOST} \max_k |x_k| \le {=FIRST + SECOND} \max_k |x_k| .
    ```

    By `separable-softmax` the kept keys, those that both axes keep, weigh ${=1 - LOST}$ together, in one sum over both
    axes or in one after the other; the $p_k$ that are left out are not negative.
    """
    lengths, ratios, units = (", ".join(map(str, each)) for each in (LENGTHS, RATIOS, UNITS))
    yield nonnegative("two axes leave out no more than both together", bound - LOST)
    yield Check(
        "sums without the far keys along one axis differ by at most $u$ times the largest pixel",
        left_out_failures,
        f"{lengths} keys, every target, $q = {ratios}$, $u = {units}$",
    )
