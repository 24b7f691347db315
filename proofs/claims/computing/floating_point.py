"""Justifies ``convert/heads/regime.py``: from which alpha on floating point makes attention exactly one-hot.

Everything here is decided with integers and fractions. The number e is enclosed between partial sums of its series,
so no floating-point number decides about floating-point numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.sums import Format

FORMATS = {"binary32": Format(24, -126), "binary64": Format(53, -1022)}
ONE_HOT_ALPHA = {"binary32": 104, "binary64": 746}
EXACT_ALPHA = {"binary32": 128, "binary64": 1024}
MARGIN_BITS = {"binary32": 34, "binary64": 402}
TERMS = 60  # of the series of e: an enclosure of relative width below 10^-80


def e_enclosure(terms: int = TERMS) -> tuple[Fraction, Fraction]:
    """Rational numbers below and above e: the sum of 1/n! up to n = N, and 1/(N! N) more."""
    below = sum((Fraction(1, math.factorial(n)) for n in range(terms + 1)), Fraction(0))
    return below, below + Fraction(1, math.factorial(terms) * terms)


def exp_is_below(exponent: int, power: int) -> bool:
    """Whether exp(-exponent) < 2^power, both exponents of either sign, is certain."""
    return Fraction(2) ** -power < e_enclosure()[0] ** exponent


def exp_is_above(exponent: int, power: int) -> bool:
    """Whether exp(-exponent) > 2^power is certain."""
    return Fraction(2) ** -power > e_enclosure()[1] ** exponent


@claim(
    status=Status.COQ,
    scope=r"IEEE 754 binary32 and binary64 with subnormal numbers, rounded to nearest. The largest score is the "
    r"target's, and exceeds every other by at least $\alpha$, as it does where scores are exact (`exact-scores`, "
    r"`unique-maximum`); exponentials are added up in any order. Computed, $\exp 0$ is any positive number, and "
    r"below 0 $\exp$ is the rounding of a value that is at least 0 and too large by a factor of at most 1.01 in "
    r"single and 2 in double precision. That the thresholds are the smallest integers is not in Coq: it is "
    r"decided in exact arithmetic, for an $\exp$ that is rounded correctly.",
    justifies=("convert/heads/regime.py: ONE_HOT_ALPHA, Regime",),
    coq=("OneHot.v: one_hot, one_hot_thresholds", "Binary.v: rounds_to_zero"),
    tests=("proofs/claims/test_floating_point.py", "convert/heads/test_regime.py"),
)
def one_hot_threshold(*, thresholds: Mapping[str, int] = ONE_HOT_ALPHA) -> Checks:
    r"""From a threshold of alpha on, computed attention is exactly one-hot.

    From $\alpha = {=thresholds["binary32"]}$ on in single precision, and from $\alpha = {=thresholds["binary64"]}$ on
    in double precision, the softmax gives exactly 1 to the target and exactly 0 to every other key. No smaller integer
    does:

    ```math
    {=listed} ,
    ```

    where the powers of two are half of the smallest positive number of each format.

    **Proof.** What is nearer to 0 than to the smallest positive number rounds to 0; with $p$ bits and the smallest
    normal number $2^{e_{\min}}$, that is what lies below $2^{e_{\min} - p}$. The softmax subtracts the target's score.
    What is left for any other key is at most $-\alpha$, so its exponential rounds to 0. The sum of all is then the
    exponential of the target, which divided by itself is 1. At $\alpha - 1$ the exponential of a key beside the target
    does not round to 0. For the comparison, $e$ lies between $\sum_{n \le N} 1/n!$ and that plus $1/(N!\ N)$, both
    rational, and their powers are compared with powers of two as fractions. $\square$
    """
    powers = {name: FORMATS[name].zero_exponent for name in thresholds}
    listed = r", \qquad ".join(rf"e^{{-{a}}} < 2^{{{powers[n]}}} < e^{{-{a - 1}}}" for n, a in thresholds.items())

    def wrong(holds: Callable[[int, int], bool], less: int, relation: str) -> Failures:
        refused = {n: a - less for n, a in thresholds.items() if not holds(a - less, powers[n])}
        return [f"exp(-{a}) {relation} 2^{powers[n]} is not so in {n}" for n, a in refused.items()]

    yield Check(r"$e^{-\alpha}$ is below half of the smallest positive number", lambda: wrong(exp_is_below, 0, "<"))
    yield Check(
        r"$e^{-(\alpha - 1)}$ is above half of the smallest positive number", lambda: wrong(exp_is_above, 1, ">")
    )


@claim(
    status=Status.ALGEBRA,
    scope=r"As in `one-hot-threshold`, but $\exp$ may be too large by the factors below; Coq has $2^{33}$ for the "
    r"first.",
    justifies=("convert/heads/regime.py: EXACT_ALPHA",),
    coq=("OneHot.v: one_hot_thresholds",),
    tests=("proofs/claims/test_floating_point.py",),
    is_lemma=True,
)
def exact_defaults(*, alphas: Mapping[str, int] = EXACT_ALPHA, margins: Mapping[str, int] = MARGIN_BITS) -> Checks:
    r"""The default sharpnesses are exact, with a margin.

    They are the next powers of two after the thresholds, because `exact-scores` needs powers of two. With them
    attention is exactly one-hot even if $\exp$ is too large by a factor of $2^{{=margins["binary32"]}}$ in single, or
    $2^{{=margins["binary64"]}}$ in double precision:

    ```math
    {=listed} .
    ```
    """
    powers = {name: FORMATS[name].zero_exponent for name in alphas}
    listed = r", \qquad ".join(rf"2^{{{margins[n]}}} e^{{-{a}}} < 2^{{{powers[n]}}}" for n, a in alphas.items())

    def not_powers_of_two() -> Failures:
        return [f"{a} is not a power of two" for a in alphas.values() if a < 1 or a & (a - 1)]

    def below_threshold() -> Failures:
        return [f"{a} < {ONE_HOT_ALPHA[n]} in {n}" for n, a in alphas.items() if a < ONE_HOT_ALPHA[n]]

    def no_margin() -> Failures:
        below = {n: powers[n] - margins[n] for n in alphas}
        return [f"exp(-{a}) < 2^{below[n]} is not so" for n, a in alphas.items() if not exp_is_below(a, below[n])]

    yield Check("the default values are powers of two", not_powers_of_two)
    yield Check("the default values are not below the thresholds", below_threshold)
    yield Check(r"$e^{-\alpha}$ is below half of the smallest positive number by the margin", no_margin)
