"""Rounding, the tail of a whole kernel, propagation: false variants are rejected, and the code agrees."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.bounds import rounding as code
from conv2attn.convert.certificate.network.pointwise import CURVES
from conv2attn.convert.certificate.network.table import TABLE
from conv2attn.proofs.claims.certificate import accumulation, propagation, underflow
from conv2attn.proofs.claims.certificate import operation_roundings as roundings
from conv2attn.proofs.claims.certificate import propagation as rules
from conv2attn.proofs.claims.certificate.accumulation import (
    addition_failures,
    joining_failures,
    sum_failures,
)
from conv2attn.proofs.claims.certificate.propagation import affine_failures, slope_failures
from conv2attn.proofs.claims.certificate.rounding import (
    DISTANCE,
    DISTANCES,
    ERROR,
    REACH,
    ROUNDINGS,
    SHARE,
    TOTAL,
    induction_failures,
    order_failures,
    score_rounding,
    sharpness_failures,
    softmax_rounding,
)
from conv2attn.proofs.claims.certificate.tail import (
    CHANGES,
    PROBABILITY,
    border_failures,
    range_failures,
    smoothed_bound_failures,
)
from conv2attn.proofs.claims.common.lattice import LISTED
from conv2attn.proofs.claims.common.sums import U, gamma, round_to
from conv2attn.proofs.prover.claim import Failures
from tests.convert.certificate.network.operations import OPERATIONS, box, numbers

HALF = Fraction(1, 2)

FALSE = {
    "two precisions that add up": roundings.operation_roundings(bound=lambda a, b: a + b),
    "half of what a stored variance takes": roundings.operation_roundings(factor=sympy.Rational(1, 2)),
    "a layer's own difference forgotten": propagation.error_propagation(own=0),
    "what a layer inherits forgotten": propagation.error_propagation(inherited=0),
    "a quotient that multiplies": rules.propagation_rules(quotient=(rules.A - rules.C) * rules.B),
    "a mean of half the weight": rules.propagation_rules(total=sympy.Rational(1, 2)),
    "a maximum that moves by half": rules.propagation_rules(factor=sympy.Rational(1, 2)),
    "two numbers of a range that are equal": rules.propagation_rules(width=0),
    "one rounding for both networks": rules.propagation_rules(roundings=1),
    "an error of the sum that makes probabilities smaller": softmax_rounding(
        worst=(1 + SHARE) * (1 + U) / ((1 + ERROR) * (1 + TOTAL)) - 1
    ),
    "a smaller exponential": softmax_rounding(share=sympy.Rational(9, 8)),
    "larger scores": softmax_rounding(largest=sympy.Rational(1, 2)),
    "factorials above powers of 3": softmax_rounding(ratio=3),
    "a rounding of the score forgotten": score_rounding(factor=ROUNDINGS - 1),
    "a distance without its cross term": score_rounding(distances=DISTANCES - REACH * DISTANCE),
    "a smaller constant": score_rounding(distances=DISTANCES - REACH**2),
    "far terms counted once": accumulation.key_accumulation(far=1),
    "more far terms": accumulation.key_accumulation(share=sympy.Rational(1, 2)),
    "two axes that leave out what one does": accumulation.left_out_keys(bound=accumulation.FIRST),
    "an addition that loses one operand less": underflow.underflow_errors(addition=3),
}

FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "gamma without its denominator": partial(induction_failures, bound=lambda m: m * U),
    "half of gamma": partial(induction_failures, bound=lambda m: gamma(m) / 2),
    "a bound on sums divided by 100": partial(order_failures, factor=Fraction(1, 100)),
    "a bound on sums that is never reached": partial(sharpness_failures, share=Fraction(1)),
    "additions that err by half as much": partial(addition_failures, bound=lambda a, b, u, _: u * abs(a + b) / 2),
    "additions that err by less than the smaller term": partial(
        addition_failures, bound=lambda a, b, *_: min(abs(a), abs(b)) / 4
    ),
    "fused products that are numbers": partial(
        addition_failures, bound=lambda a, b, u, _: min(abs(a), abs(b), u * abs(a + b))
    ),
    "one join too few": partial(joining_failures, joins=lambda near: near - 2),
    "one join too many": partial(joining_failures, joins=lambda near: near),
    "a bound on all keys divided by 100": partial(sum_failures, factor=Fraction(1, 100)),
    "keys that are left out twice as far": partial(accumulation.left_out_failures, share=Fraction(1)),
    "what is left out divided by 100": partial(accumulation.left_out_failures, factor=Fraction(1, 100)),
    "subnormal weights that are always read": partial(underflow.order_failures, flushed=0),
    "inputs and results that are never lost": partial(underflow.order_failures, inputs=0, each=0),
    "an underflow divided by 100": partial(underflow.order_failures, factor=Fraction(1, 100)),
    "partial sums that stay at 0": partial(underflow.order_failures, partial=0),
    "a quarter of the oscillation": partial(range_failures, factor=sympy.Rational(1, 4)),
    "all of the oscillation": partial(range_failures, factor=sympy.Integer(1)),
    "a border that changes nothing": partial(border_failures, change=0 * PROBABILITY),
    "a border that changes the other way": partial(border_failures, change=-CHANGES * PROBABILITY),
    "changes that sum to P": partial(border_failures, total=1 - CHANGES),
    "a border that gives back": partial(smoothed_bound_failures, LISTED, border=-1),
    "a quarter of the sum over all keys": partial(smoothed_bound_failures, LISTED, half=sympy.Rational(1, 4)),
    "half of what a weight passes on": partial(affine_failures, factor=HALF),
    "a sum with one error": partial(rules.sum_failures, error=rules.E),
    "a product with the other value": partial(
        rules.product_failures, identity=rules.A * (rules.B - rules.D) + rules.B * (rules.A - rules.C)
    ),
    "corners that are not weighted by both": partial(rules.product_failures, corners=lambda s, t: s),
    "a gate that does not close": partial(rules.gate_failures, low=lambda one, x: one * x),
    **{
        f"one {what} of {name} less": partial(roundings.count_failures, fewer={name: fewer})
        for name, what, fewer in (
            ("conv2d", "rounding", (1, 0)),
            ("linear", "narrowing", (0, 1)),
            ("conv_transpose2d", "narrowing", (0, 1)),
            ("softmax", "narrowing", (0, 1)),
            ("matmul", "rounding", (1, 0)),
            ("linalg_vector_norm", "rounding", (1, 0)),
            ("rsqrt", "narrowing", (0, 1)),
        )
    },
    "a SiLU of slope 1": partial(slope_failures, silu=sympy.Integer(1)),
    "a GELU of slope 1.12": partial(slope_failures, gelu=sympy.Rational(112, 100)),
    "a hardswish of slope 1": partial(slope_failures, hardswish=sympy.Integer(1)),
    "a sigmoid of slope 1/5": partial(slope_failures, sigmoid=sympy.Rational(1, 5)),
    "a tanh of slope 1/2": partial(slope_failures, tanh=sympy.Rational(1, 2)),
}


@given(st.integers(1, 2**20), st.sampled_from([2.0**-24, 2.0**-53]))
def test_the_gamma_of_the_code_is_that_of_the_proof(terms: int, unit: float) -> None:
    exact = gamma(Fraction(terms), Fraction(unit))
    assert code.gamma(terms, unit) == pytest.approx(float(exact), rel=2**-50)


@given(st.fractions(min_value=-(10**6), max_value=10**6))
def test_the_rounding_of_the_proof_is_that_of_binary64(value: Fraction) -> None:
    assert round_to(value, 53) == Fraction(float(value))


def test_the_slopes_of_the_code_are_those_of_the_proof() -> None:
    slopes = {name.upper(): curve.steepest for name, curve in CURVES.items()}
    for name in ("SILU", "GELU", "HARDSWISH", "SIGMOID", "TANH"):
        assert sympy.Rational(str(slopes[name])) == getattr(propagation, f"{name}_SLOPE")


COUNTS = {  # of each operation's first call: terms of its sums, and of those whose partial sums are stored
    "conv2d": (12, 1),
    "conv_transpose2d": (12, 6),
    "linear": (5, 1),
    "avg_pool2d": (6, 1),
    "adaptive_avg_pool2d": (6, 1),
    "mean": (30, 1),
    "sum": (30, 1),
    "layer_norm": (5, 1),
    "softmax": (5, 1),
    "matmul": (5, 1),
    "linalg_vector_norm": (24, 1),
    "var": (30, 1),
    "addmm": (5, 1),
}


def test_the_roundings_of_the_code_are_those_of_the_proof() -> None:
    for name in set(roundings.TABLE) - {"to"}:
        number = {"add": 3}.get(name, 0)  # the call with a factor
        operation, (terms, stored) = OPERATIONS[name][number], COUNTS.get(name, (1, 1))
        call = operation.call([box(numbers(*shape)) for shape in operation.shapes], torch.float32)
        counted = TABLE[name]
        assert counted.terms is not None
        assert counted.terms(call) == roundings.TABLE[name](terms)[0], name
        assert counted.narrowings(call) == roundings.TABLE[name](stored)[1], name
