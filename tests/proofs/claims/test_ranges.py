"""The bounds at depth: chords, ranges, Cauchy numbers and the level of the test, and false variants of each."""

from __future__ import annotations

from fractions import Fraction

import sympy

from conv2attn.convert.certificate.network.pointwise import CURVES
from conv2attn.proofs.claims.certificate.ranges import (
    SIGMOID_BEND,
    TANH_BEND,
    cauchy_scale,
    chords,
    level_of_the_test,
    partial_sums,
    ranges_hold,
)
from conv2attn.proofs.prover.claim import Claim

HALF = Fraction(1, 2)
FALSE: dict[str, Claim] = {
    "a chord through the wrong end": chords(end=sympy.Rational(1, 2)),
    "nine tenths of a chord's half": chords(half=sympy.Rational(9, 20)),
    "a clamp with the slope 1": chords(slope=sympy.Integer(1)),
    "a third of a tangent's square": chords(tangent=sympy.Rational(1, 3)),
    "a ninth of a chord's square": chords(across=sympy.Rational(1, 9)),
    "a sigmoid that bends less": chords(sigmoid=sympy.Rational(9, 100)),
    "a tanh that bends less": chords(tanh=sympy.Rational(3, 4)),
    "softmax without its variance": chords(variance=sympy.Integer(0)),
    "a norm that turns twice": chords(turned=sympy.Integer(2)),
    "a SiLU that bends less": chords(silu=0.49),
    "a GELU that bends less": chords(gelu=0.79),
    "a share that grows by one move": chords(growth=1.0),
    "a norm's derivative with a term too few": chords(last=sympy.Integer(3)),
    "a power that bends half as much": chords(power=sympy.Rational(1, 2)),
    "an exponential that bends half as much": chords(rate=sympy.Rational(1, 2)),
    "a 2-norm that bends half as much": chords(most=sympy.Rational(1, 2)),
    "half of what others exceed a maximum by": chords(more=sympy.Rational(1, 2)),
    "a product that leaves half": chords(crossed=sympy.Rational(1, 2)),
    "ranges of nine tenths": ranges_hold(factor=Fraction(9, 10)),
    "kinks that leave nothing": ranges_hold(rest=Fraction(0)),
    "a backward pass without its rounding": ranges_hold(wrong=sympy.Integer(0)),
    "another density": cauchy_scale(density=sympy.Integer(2)),
    "half of the probability": cauchy_scale(share=sympy.Integer(1)),
    "rounding counted once where it comes twice": level_of_the_test(rounding=sympy.Integer(2)),
    "one vote more than asked": level_of_the_test(start=1),
    "a lighter tail of Cauchy numbers": level_of_the_test(tail=sympy.Rational(1, 2)),
    "a smaller mean of squares": level_of_the_test(square=sympy.Rational(1, 2)),
    "one of two summands": level_of_the_test(both=sympy.Integer(1)),
    "a third of the absolute sum": partial_sums(share=Fraction(1, 3)),
    "half of the additions": partial_sums(additions=sympy.Rational(1, 2)),
}


def test_the_bends_of_the_code_are_no_smaller_than_those_of_the_proof() -> None:
    proved = {"sigmoid": SIGMOID_BEND, "tanh": TANH_BEND, "silu": HALF, "gelu": 2 / sympy.sqrt(2 * sympy.pi)}
    for name, bend in proved.items():
        assert float(bend) <= CURVES[name].bend <= float(bend) * (1 + 1e-3)
