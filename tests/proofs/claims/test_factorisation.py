"""Separability, the smoothing factorisation and the error bound reject false variants, and the code agrees."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import partial
from itertools import product

import mpmath
import pytest
import sympy
import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.proofs.claims.certificate.tail import SHARP_BOUND, TAU, N, error_bound, lemma_failures
from conv2attn.proofs.claims.common.small import Case, Entries, attention, convolution_of, entries, softmax
from conv2attn.proofs.claims.computing.factorisation import (
    CASES,
    box_failures,
    factorisation_failures,
    smoothed_convolution,
    soft,
)
from conv2attn.proofs.claims.computing.separability import separability_failures, split_failures
from conv2attn.proofs.claims.theorem.one_hot import Q
from conv2attn.proofs.prover.claim import Failures
from tests.bounds import output_bound, softmax_bound

SMALL = ((2, 2),)
FEW = CASES[4:6]  # with strides and a dilation
ALPHA, DELTA_1, CENTER_1 = sympy.symbols("alpha delta1 Delta1", real=True)

FALSE = {
    "a sum with half the tail": error_bound(tail=TAU / 2),
    "a sum with the tail squared": error_bound(tail=TAU**2),
}

FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "a product of row and column": partial(separability_failures, SMALL, score=lambda a, b: a * b),
    "a cross term": partial(separability_failures, SMALL, score=lambda a, b: a + b + a * b),
    "a difference": partial(separability_failures, SMALL, score=lambda a, b: a - b),
    "a quadratic score with a cross term": partial(split_failures, cross=1),
    "a row term with the other sign": partial(split_failures, first=ALPHA * (DELTA_1 - CENTER_1) ** 2),
    "a row term without the square": partial(split_failures, first=-ALPHA * (DELTA_1 - CENTER_1)),
    "distances instead of squares": partial(factorisation_failures, FEW, exponent=abs),
    "half the exponent's scale": partial(factorisation_failures, FEW, exponent=lambda d: 2 * d * d),
    "queries without stride": partial(factorisation_failures, FEW, query=lambda case, p: p),
    "centres without dilation": partial(factorisation_failures, FEW, center=lambda case, tap: tap),
    "boxes with distances instead of squares": partial(box_failures, exponent=abs),
    "a softmax over the pixels that have values": partial(box_failures, is_renormalised=True),
    "half the error": partial(lemma_failures, factor=sympy.Rational(1, 2)),
    "twice the error, never attained": partial(lemma_failures, factor=2),
    "an error of the other sign": partial(lemma_failures, factor=-1),
}


# Powers of two: the code's scores are exact, so ``bounds`` holds; the proof's side is computed in 60 digits.
ALPHAS = (0.125, 0.5, 2.0, 8.0)


def layer_of(case: Case, s: Entries) -> tuple[nn.Conv2d, torch.Tensor]:
    """The convolution and the input with these numbers; padding is put into the input."""
    size, kernel, stride, dilation, *_ = zip(*case.axes, strict=True)
    conv = nn.Conv2d(*case.channels, kernel, stride=stride, dilation=dilation, groups=case.groups, dtype=torch.float64)
    assert conv.bias is not None
    with torch.no_grad():
        for parameter, numbers in ((conv.weight, s.weight.values()), (conv.bias, s.bias)):
            parameter.copy_(
                torch.tensor([float(number) for number in numbers], dtype=torch.float64).view(parameter.shape)
            )
    return conv, torch.tensor([float(x) for x in s.image.values()], dtype=torch.float64).view(1, -1, *size)


def is_unpadded(case: Case) -> bool:
    return not any(axis.before or axis.after for axis in case.axes)


def test_both_sides_of_the_proof_are_both_engines_of_the_code() -> None:
    for case, alpha in product(filter(is_unpadded, CASES), ALPHAS):
        draw = random.Random(4)
        s = entries(case, partial(draw.uniform, -1, 1))
        conv, x = layer_of(case, s)
        with mpmath.workdps(60):
            q = mpmath.exp(-alpha)
            sides = {
                "literal": attention(case, s, soft(q)),
                "factored": smoothed_convolution(case, s, q),
            }
            for engine, expected in sides.items():
                layer = attention_from_conv(conv, alpha=alpha, engine=engine)
                with torch.no_grad():
                    output, allowed = layer(x)[0], output_bound(layer, x)
                assert all(abs(output[index].item() - value) <= allowed for index, value in expected.items())


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_probabilities_of_the_code_are_those_of_the_proof(alpha: float) -> None:
    conv = nn.Conv2d(1, 1, (2, 3), stride=(1, 2), dilation=(2, 1), dtype=torch.float64)
    maps = attention_from_conv(conv, alpha=alpha).attention_probabilities((4, 6), heads=[5], queries=[(1, 1)])[0, 0]
    allowed = softmax_bound(maps)
    with mpmath.workdps(60):
        expected = softmax((4, 6), (1 + 2, 2 + 2), mpmath.exp(-alpha))
        assert all(abs(maps[k].item() - probability) <= allowed[k].item() for k, probability in expected.items())


QS = (Fraction(1, 100), Fraction(1, 5), Fraction(3, 5))


def test_the_error_is_within_the_bound_in_exact_arithmetic() -> None:
    for case, q in product(filter(is_unpadded, CASES), QS):
        draw = random.Random(7)
        s = entries(case, lambda draw=draw: Fraction(draw.randint(-20, 20), 7))  # type: ignore[misc]
        misread, hard = attention(case, s, soft(q)), convolution_of(case, s)
        tail = sympy.lambdify((Q, N), SHARP_BOUND)(q, 2)
        for (o, *_), error in ((index, abs(misread[index] - hard[index])) for index in hard):
            values = {
                c: [x for (channel, *_), x in s.image.items() if channel == c] for out, c in case.mixed if out == o
            }
            total = sum(
                abs(w) * (max(values[c]) - min(values[c])) for (out, c, _, _), w in s.weight.items() if out == o
            )
            assert error <= tail * total
