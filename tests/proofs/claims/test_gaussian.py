"""The claims about Gaussian heads reject false variants; the isotropic one is the layer's head."""

from __future__ import annotations

import sympy as sp
import torch

from conv2attn.convert.heads.encoding import head_vectors
from conv2attn.proofs.claims.common.scores import alpha, dot
from conv2attn.proofs.claims.other_encodings import gaussian
from conv2attn.proofs.claims.other_encodings import gaussian as gaussian_reduction
from conv2attn.proofs.claims.other_encodings.gaussian import a, b, c, mu_1, mu_2, x_1, x_2
from tests.claims import integers, value

R10, T10 = gaussian.DRAFT_ENCODING, gaussian.DRAFT_HEAD_VECTOR
R5, V5 = gaussian_reduction.ENCODING, gaussian_reduction.GAUSSIAN_HEAD_VECTOR
PRINTED = {a: alpha, b: sp.Integer(0), c: alpha}  # the draft's remark after eq. (16)

FALSE = {
    "sign": gaussian.gaussian_encoding(head_vector=(-T10[0], *T10[1:])),
    "factor 2 missing": gaussian.gaussian_encoding(head_vector=(*T10[:6], T10[6] / 2, *T10[7:])),
    "means swapped": gaussian.gaussian_encoding(head_vector=(*T10[:2], T10[3], T10[2], *T10[4:])),
    "exponent": gaussian.gaussian_encoding(encoding=(*R10[:4], x_1, *R10[5:])),
    "constant missing": gaussian.gaussian_encoding(head_vector=(*T10[:9], sp.Integer(0))),
    "asymmetric matrix": gaussian.gaussian_encoding(precision=sp.Matrix([[a, b], [-b, c]])),
    "a form with another first coefficient": gaussian.gaussian_maximum(form=gaussian.FORM + gaussian.u**2),
    "a form without the factor 2": gaussian.gaussian_maximum(form=gaussian.FORM - b * gaussian.u * gaussian.v),
    "a root that is not real": gaussian.gaussian_maximum(root=sp.I * gaussian.ROOT),
    "wrong discriminant": gaussian.gaussian_maximum(discriminant=a * c + b**2),
    "discriminant with a constant": gaussian.gaussian_maximum(discriminant=a * c - 4 * b**2),
    "five: product missing": gaussian_reduction.gaussian_reduction(encoding=(*R5[:4], sp.Integer(0))),
    "five: one mean left out": gaussian_reduction.gaussian_reduction(head_vector=(a * mu_1, *V5[1:])),
    "five: constant": gaussian_reduction.gaussian_reduction(dropped=2 * gaussian_reduction.DROPPED),
    "five: constant that depends on the key": gaussian_reduction.gaussian_reduction(
        dropped=gaussian_reduction.DROPPED + x_1
    ),
    "four are enough": gaussian_reduction.gaussian_reduction(encoding=R5[:4], head_vector=V5[:4]),
    "isotropic: as printed": gaussian_reduction.gaussian_isotropic(constants=PRINTED),
    "isotropic: sign": gaussian_reduction.gaussian_isotropic(constants={a: -2 * alpha, b: sp.Integer(0), c: 2 * alpha}),
    "isotropic: b": gaussian_reduction.gaussian_isotropic(constants={a: 2 * alpha, b: alpha, c: 2 * alpha}),
}


def test_the_isotropic_gaussian_has_the_layers_head_vector() -> None:
    center, strength = integers(1, 2), torch.tensor([4.0]).double()
    m_1, m_2 = center[0].tolist()
    point = {"mu_1": m_1, "mu_2": m_2, "alpha": 4.0}
    five = [value(entry.subs(gaussian_reduction.ISOTROPIC), **point) for entry in V5]
    square, row, column = head_vectors(strength, center)[0].tolist()
    assert five == [row, column, square, square, 0.0]


def test_ten_and_five_components_give_the_same_attention() -> None:
    point = {"a": 3.0, "b": 1.0, "c": 2.0, "mu_1": -1.0, "mu_2": 2.0}
    keys = integers(6, 2).tolist()
    logits = [[value(dot(R, T), **point, x_1=k[0], x_2=k[1]) for k in keys] for R, T in ((R10, T10), (R5, V5))]
    ten, five = torch.tensor(logits, dtype=torch.float64)
    assert (ten - five).unique().tolist() == [value(gaussian_reduction.DROPPED, **point)]


def test_a_semi_definite_matrix_has_ties() -> None:
    tied = {a: sp.Integer(1), b: sp.Integer(1), c: sp.Integer(1), mu_1: sp.Integer(0), mu_2: sp.Integer(0)}
    score = gaussian.EXPONENT.subs(tied)
    assert score.subs({x_1: 0, x_2: 0}) == score.subs({x_1: -1, x_2: 1}) == 0
