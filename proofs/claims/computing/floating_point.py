"""Justifies ``convert/heads/regime.py``: from which alpha on floating point makes attention exactly one-hot.

Everything here is decided with integers and fractions. The number e is enclosed between partial sums of its series,
so no floating-point number decides about floating-point numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...prover.old.claim import Check, Claim, Formula, Kind, Step
from ...prover.old.formula import lines


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of IEEE 754.

    Attributes:
        precision: Bits of the significand, p.
        smallest_exponent: Exponent of the smallest normal number, e_min.
    """

    precision: int
    smallest_exponent: int

    @property
    def zero_exponent(self) -> int:
        """Half of the smallest positive number is 2 to this."""
        return self.smallest_exponent - self.precision


FORMATS = {"binary32": Format(24, -126), "binary64": Format(53, -1022)}
ONE_HOT_ALPHA = {"binary32": 104, "binary64": 746}
EXACT_ALPHA = {"binary32": 128, "binary64": 1024}
MARGIN_BITS = {"binary32": 34, "binary64": 402}
TERMS = 60  # of the series of e: an enclosure of relative width below 10^-80


def claims() -> list[Claim]:
    """The claims of this file."""
    return [one_hot_threshold(), exact_defaults()]


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


def one_hot_threshold(*, thresholds: Mapping[str, int] = ONE_HOT_ALPHA) -> Claim:
    """The smallest integers alpha for which exp(-alpha) rounds to zero."""
    powers = {name: FORMATS[name].zero_exponent for name in thresholds}

    def not_below() -> list[str]:
        return [
            f"exp(-{a}) < 2^{powers[n]} is not so in {n}"
            for n, a in thresholds.items()
            if not exp_is_below(a, powers[n])
        ]

    def not_above() -> list[str]:
        return [
            f"exp(-{a - 1}) > 2^{powers[n]} is not so in {n}, so {a} is not the smallest integer"
            for n, a in thresholds.items()
            if not exp_is_above(a - 1, powers[n])
        ]

    bounds = [
        Formula(f"e^{{-{a}}} < 2^{{{powers[n]}}} < e^{{-{a - 1}}}", f"exp(-{a}) < 2^{powers[n]} < exp(-{a - 1})")
        for n, a in thresholds.items()
    ]
    formats = [Formula(rf"\quad\text{{({name})}}", f"  ({name})") for name in thresholds]
    listed = [Formula(b.latex + f.latex, b.text + f.text) for b, f in zip(bounds, formats, strict=True)]
    return Claim(
        name="one-hot-threshold",
        title="From $alpha = 104$ in single and 746 in double precision, attention is exactly one-hot",
        statement=lines(*listed),
        assumptions=(
            "IEEE 754 binary32 and binary64 with subnormal numbers; rd rounds to nearest; $exp$ is rounded "
            "correctly. `exact-defaults` says what margin the default $alpha$ leaves to an $exp$ that is not.",
            "The scores are exact: `exact-scores`. Keys and centres have integer coordinates, the target is a key.",
        ),
        steps=_steps(listed),
        checks=(
            Check("$exp(-alpha)$ is below half of the smallest positive number", Kind.EXACT, not_below),
            Check("$exp(-(alpha - 1))$ is above half of the smallest positive number", Kind.EXACT, not_above),
        ),
        justifies=("conv2attn.convert.heads.regime.ONE_HOT_ALPHA", "conv2attn.convert.heads.regime.Regime"),
        tests=(
            "proofs.claims.test_floating_point.test_softmax_is_not_one_hot_below_the_threshold",
            "convert.heads.test_regime.test_the_threshold_is_the_first_integer_whose_exponential_rounds_to_zero",
        ),
        formal=(
            "Binary.rounds_to_zero",
            "OneHot.one_hot",
            "OneHot.one_hot_thresholds",
        ),
    )


def _steps(listed: Sequence[Formula]) -> tuple[Step, ...]:
    return (
        Step(
            Formula(r"2^{e_{\min} - p + 1}", "2^(e_min - p + 1)"),
            "The smallest positive number, with a significand of $p$ bits: $2^-149$ for $p = 24$ and $e_min = -126$, "
            "$2^-1074$ for $p = 53$ and $e_min = -1022$.",
        ),
        Step(
            Formula(
                r"0 \le x < 2^{e_{\min} - p} \implies \mathrm{rd}(x) = 0",
                "0 <= x < 2^(e_min - p) implies rd(x) = 0",
            ),
            "What is nearer to 0 than to the smallest positive number rounds to 0.",
        ),
        Step(
            lines(*listed),
            "The number $e$ lies between $sum_{n <= N} 1/n!$ and that plus $1/(N! N)$, both rational; their powers "
            "are compared with powers of 2 as fractions.",
        ),
        Step(
            Formula(
                r"\mathrm{rd}(e^{s_k - s_t}) = \mathrm{rd}(e^{-\alpha m}) = 0",
                "rd(exp(s_k - s_t)) = rd(exp(-alpha m)) = 0",
            ),
            "The softmax subtracts the largest score, the target's. Any other key $k$ is further away, by an integer "
            "$m >= 1$ (`unique-maximum`), and $exp(-alpha m)$ falls as $m$ grows.",
        ),
        Step(
            Formula(
                r"p_t = \frac{1}{1 + 0 + \dots + 0} = 1,\quad p_k = \frac{0}{1} = 0",
                "p_t = 1 / (1 + 0 + ... + 0) = 1, p_k = 0 / 1 = 0",
            ),
            "$exp(0) = 1$, and sums with 0 and division by 1 do not round.",
        ),
    )


def exact_defaults(*, alphas: Mapping[str, int] = EXACT_ALPHA, margins: Mapping[str, int] = MARGIN_BITS) -> Claim:
    """The default locality strengths are in the exact regime, with a margin for an inaccurate exp."""
    powers = {name: FORMATS[name].zero_exponent - margins[name] for name in alphas}
    shown = [Formula(f"e^{{-{a}}} < 2^{{{powers[n]}}}", f"exp(-{a}) < 2^{powers[n]}") for n, a in alphas.items()]

    def not_powers_of_two() -> list[str]:
        return [f"{a} is not a power of two" for a in alphas.values() if a < 1 or a & (a - 1)]

    def below_threshold() -> list[str]:
        return [f"{a} < {ONE_HOT_ALPHA[n]} in {n}" for n, a in alphas.items() if a < ONE_HOT_ALPHA[n]]

    def no_margin() -> list[str]:
        return [f"exp(-{a}) < 2^{powers[n]} is not so" for n, a in alphas.items() if not exp_is_below(a, powers[n])]

    return Claim(
        name="exact-defaults",
        title="The default locality strengths are exact, with a margin",
        statement=lines(*shown),
        assumptions=(
            "As in `one-hot-threshold`, but $exp$ may be wrong by a factor of $2^34$ (single), $2^402$ (double "
            "precision).",
        ),
        steps=(
            Step(
                Formula(r"128 = 2^7 \ge 104,\quad 1024 = 2^{10} \ge 746", "128 = 2^7 >= 104, 1024 = 2^10 >= 746"),
                "The next powers of two after the thresholds of `one-hot-threshold`; `exact-scores` needs powers of "
                "two.",
            ),
            *(
                Step(
                    formula,
                    f"{margins[name]} powers of two below $2^{FORMATS[name].zero_exponent}$, where {name} rounds to 0.",
                )
                for name, formula in zip(alphas, shown, strict=True)
            ),
        ),
        checks=(
            Check("the default values are powers of two", Kind.EXACT, not_powers_of_two),
            Check("the default values are not below the thresholds", Kind.EXACT, below_threshold),
            Check("$exp(-alpha)$ is below half of the smallest positive number by the margin", Kind.EXACT, no_margin),
        ),
        justifies=("conv2attn.convert.heads.regime.EXACT_ALPHA",),
        tests=("proofs.claims.test_floating_point.test_softmax_is_one_hot_at_the_default",),
    )
