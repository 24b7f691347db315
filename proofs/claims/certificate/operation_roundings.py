"""Justifies ``convert/certificate/network/table.py``: how often each operation rounds a term, and to what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sympy

from ...prover.checks import Expr, nonnegative, positive_form
from ...prover.claim import Check, Checks, Failures, Status, claim

EXP, ACTIVATION = 64, 64  # roundings that an error of 32 units in the last place counts for
ROOT = 2  # of a root by itself, which libraries compute to a unit in the last place
SIZES = (1, 2, 3, 7)  # terms of a sum


@dataclass(frozen=True)
class Rounded:
    """A computed number, by the most roundings that one of its terms has gone through.

    Attributes:
        terms: In the precision that is computed in.
        narrowings: To the precision of tensors.
    """

    terms: int = 0
    narrowings: int = 0

    def of(self, *others: Rounded, roundings: int = 1, narrow: bool = False) -> Rounded:
        """The result of an operation on this and others, which may be stored as a tensor."""
        operands = self, *others
        return Rounded(
            max(one.terms for one in operands) + roundings, max(one.narrowings for one in operands) + int(narrow)
        )

    def stored(self) -> Rounded:
        """The number in a tensor."""
        return Rounded(self.terms, self.narrowings + 1)


GIVEN = Rounded()


def total(value: Rounded, count: int, *, narrow: bool = False) -> Rounded:
    """A sum of ``count`` values like this, in the order in which one term goes through every addition."""
    for _ in range(count - 1):
        value = value.of(value, narrow=narrow)
    return value


def products(count: int) -> Rounded:
    """A sum of products."""
    return total(GIVEN.of(GIVEN), count)


def transposed(count: int) -> Rounded:
    """Each of ``count`` taps gives one product, and is stored; they are added to 0, and a bias to them."""
    taps = total(GIVEN.of(GIVEN).stored(), count + 1, narrow=True)
    return Rounded(products(count).of(GIVEN).terms, taps.of(GIVEN, narrow=True).narrowings)


def batch_norm(count: int) -> Rounded:
    """(x - mean) / sqrt(variance + eps) weight + bias, every step stored."""
    inverse = GIVEN.of(GIVEN, narrow=True).of(narrow=True).of(narrow=True)
    centered = GIVEN.of(GIVEN, narrow=True)
    return centered.of(inverse, narrow=True).of(GIVEN, narrow=True).of(GIVEN, narrow=True)


def normalised(count: int) -> Rounded:
    """The same with the mean and the variance of ``count`` values, which are stored."""
    mean = total(GIVEN, count).of()
    centered = GIVEN.of(mean)
    variance = total(centered.of(centered), count).of()
    inverse = Rounded(variance.terms, 1).of(narrow=True).of(narrow=True)  # eps, and the root's inverse
    outer = Rounded(centered.terms, 2).of(inverse, narrow=True)
    return outer.of(GIVEN, narrow=True).of(GIVEN, narrow=True)


def softmax(count: int) -> Rounded:
    """Exponentials of x - max, each and their sum stored, and the quotient."""
    numerator = GIVEN.stored().of(roundings=EXP).stored()
    share = numerator.of(total(numerator, count))
    return Rounded(share.terms + EXP, share.narrowings + 1)  # numerator and denominator both err


def variance(count: int) -> Rounded:
    """The mean of squares of what is left of ``count`` values without their mean."""
    centered = GIVEN.of(total(GIVEN, count).of())
    return total(centered.of(centered), count).of().stored()


FORMULAS: Mapping[str, Callable[[int], Rounded]] = {
    "conv2d": lambda count: products(count).of(GIVEN).stored(),
    "conv_transpose2d": transposed,
    "linear": lambda count: products(count).stored().of(GIVEN, narrow=True),
    "batch_norm": batch_norm,
    "avg_pool2d": lambda count: total(GIVEN, count).of().of().stored(),
    "adaptive_avg_pool2d": lambda count: total(GIVEN, count).of().of().stored(),
    "mean": lambda count: total(GIVEN, count).of().of().stored(),
    "sum": lambda count: total(GIVEN, count).stored(),
    "sigmoid": lambda count: GIVEN.of(roundings=ACTIVATION).stored(),
    "glu": lambda count: GIVEN.of(roundings=ACTIVATION).stored().of(GIVEN, narrow=True),
    "add": lambda count: GIVEN.of().stored().of(GIVEN, narrow=True),  # with a factor
    "mul": lambda count: GIVEN.of(GIVEN, narrow=True),
    "div": lambda count: GIVEN.of().of(GIVEN, narrow=True),
    "square": lambda count: GIVEN.of(GIVEN).stored(),
    "reciprocal": lambda count: GIVEN.of().stored(),
    "sqrt": lambda count: GIVEN.of(roundings=ROOT).stored(),
    "rsqrt": lambda count: GIVEN.of(roundings=ROOT).stored().of(narrow=True),
    "exp": lambda count: GIVEN.of(roundings=ACTIVATION).stored(),
    "linalg_vector_norm": lambda count: products(count).of(roundings=ROOT).stored(),
    "var": variance,
    "layer_norm": normalised,
    "softmax": softmax,
    "matmul": lambda count: products(count).stored(),
    "addmm": lambda count: products(count).of().stored().of(GIVEN.of(), narrow=True),
    "to": lambda count: GIVEN.of(narrow=True),
}

# What the rules count: roundings and narrowings of an operation, by its number of terms, or of taps.
TABLE: Mapping[str, Callable[[int], tuple[int, int]]] = {
    "conv2d": lambda count: (count + 1, 1),
    "conv_transpose2d": lambda count: (count + 1, count + 2),
    "linear": lambda count: (count + 1, 2),
    "batch_norm": lambda count: (8, 7),
    "avg_pool2d": lambda count: (count + 1, 1),
    "adaptive_avg_pool2d": lambda count: (count + 2, 1),
    "mean": lambda count: (count + 1, 1),
    "sum": lambda count: (count, 1),
    "sigmoid": lambda count: (ACTIVATION, 1),
    "glu": lambda count: (ACTIVATION + 1, 2),
    "add": lambda count: (2, 2),
    "mul": lambda count: (1, 1),
    "div": lambda count: (2, 1),
    "square": lambda count: (1, 1),
    "reciprocal": lambda count: (1, 1),
    "sqrt": lambda count: (2, 1),
    "rsqrt": lambda count: (3, 2),
    "exp": lambda count: (ACTIVATION, 1),
    "linalg_vector_norm": lambda count: (count + 2, 1),
    "var": lambda count: (2 * count + 16, 1),
    "layer_norm": lambda count: (2 * count + 16, 7),
    "softmax": lambda count: (count + 2 * EXP + 4, 3),
    "matmul": lambda count: (count, 1),
    "addmm": lambda count: (count + 3, 3),
    "to": lambda count: (1, 1),
}


def count_failures(*, fewer: Mapping[str, tuple[int, int]] | None = None) -> Failures:
    """Fails unless no term of any formula goes through more roundings, or narrowings, than the table says.

    Args:
        fewer: How many of each the table says too many, by operation.
    """
    for name, formula in FORMULAS.items():
        for count in SIZES:
            found, (less, narrower) = formula(count), (fewer or {}).get(name, (0, 0))
            terms, narrowings = TABLE[name](count)
            if found.terms > terms - less or found.narrowings > narrowings - narrower:
                yield f"{name} of {count}: {found}"


@claim(
    status=Status.INSTANCES,
    scope=r"Sums, products, quotients and roots are rounded to nearest, to $u$ or better, in any order of each sum; "
    r"what torch may store between two steps is rounded to $v$. `exp` errs by at most 32 units in the last place, "
    r"activations by 32 of the larger of 1 and $\vert x \vert$. Without overflow; underflow is another claim's.",
    justifies=(
        "convert/certificate/network/table.py: TABLE",
        "convert/certificate/network/normalised.py: norm, spread",
    ),
    tests=("proofs/claims/test_rounding.py", "convert/certificate/network/test_drawn_roundings.py"),
    is_lemma=True,
)
def operation_roundings(
    *, bound: Callable[[Expr, Expr], Expr] = lambda a, b: (1 + a) * (1 + b) - 1, factor: Expr = sympy.S.One
) -> Checks:
    r"""How often each operation rounds.

    | operation, on $n$ values | roundings to $u$ | to $v$ | steps that torch may store as a tensor |
    | --- | --- | --- | --- |
    | convolution: $n$ products, a bias | $n + 1$ | 1 | the result |
    | transposed convolution, of $n$ taps | $n + 1$ | $n + 2$ | what each tap gives, each partial sum, the bias added |
    | linear layer | $n + 1$ | 2 | the sum, the bias added |
    | batch norm | 8 | 7 | variance + eps, root, inverse, difference, two products, sum |
    | average; adaptive, one quotient an axis; sum | $n + 1$; $n + 2$; $n$ | 1 | the result |
    | activation; GLU | {=ACTIVATION}; one more | 1; 2 | the gate |
    | sum or difference with a factor; product; quotient | 2; 1; 2 | 2; 1; 1 | the product with the factor |
    | root by itself; its inverse; inverse; square | 2; 3; 1; 1 | 1; 2; 1; 1 | the root |
    | power, exponential, sine, cosine | {=ACTIVATION} | 1, power 2 | a root or a product |
    | 2-norm; variance, deviation | $n + 2$; $2 n + 16$ | 1 | the result |
    | layer, group, instance norm | $2 n + 16$ | 7 | mean, variance, and as batch norm |
    | softmax | $n + 2 \cdot {=EXP} + 4$ | 3 | $x - \max$, numerators, the result |
    | matrix product; added to a matrix | $n$; $n + 3$ | 1; 3 | the product, its factor |
    | change of precision | 1 | 1 | the result |

    In binary32 and binary64 $v = 0$: nothing is narrowed; half precision is computed in binary32, $u = 2^{-24}$.

    **Proof.** A computed result is a sum of terms, each multiplied with $1 + d$ for every operation on its way,
    $|d| \le u$, and with $1 + e$ for every time it is stored, $|e| \le v$; a quotient divides by such factors. So
    with $m$ roundings and $k$ narrowings, $m u < 1$, a term errs by at most

    ```math
    (1 + \gamma_m(u)) (1 + v)^k - 1
    ```

    of its absolute value (`rounded-sum`). The counts are those along the longest way through each formula: a sum of $n$
    terms may add one of them first, $n - 1$ times. A root by itself counts twice: torch's, of many numbers, errs by up
    to $1.49 u$. A root halves what is below it, which counts as whole. Where a mean is taken twice, for the variance,
    both sums are on the way. The table is at least that; where an implementation may
    take another step, as an inverse and a product for a quotient, it is counted. $\square$
    """
    a, b, p, q, slack = sympy.symbols("a b p q s", nonnegative=True)  # a + p and b + q bound |x| and |y|
    errors = [sign * ((1 + x) * (1 + y) - 1) for x in (a, -a) for y in (b, -b) for sign in (1, -1)]
    share = 1 / (2 * (1 + slack))  # t of 1 / sqrt(1 - t), at most 1 + factor t
    squared = ((1 + factor * share) ** 2 * (1 - share) - 1) / share**3
    yield nonnegative("two precisions compound", *(bound(a + p, b + q) - error for error in errors))
    yield positive_form("a root of a sum that is stored as a subnormal number", squared)
    names = len(FORMULAS)
    yield Check("no formula rounds more often", count_failures, f"{names} operations, sums of {SIZES} terms")
