"""The distance between trained attention and a convolution: no part of its bound can be left out."""

from __future__ import annotations

from functools import partial

import sympy

from conv2attn.proofs.claims.certificate.frozen_kernel import bound_failures
from conv2attn.proofs.claims.certificate.tail import SHARE, border_failures, range_failures

FALSE_VARIANTS = {
    "half of the range is a third": partial(range_failures, factor=sympy.Rational(1, 3)),
    "half of the range is all of it": partial(range_failures, factor=sympy.Integer(1)),
    "missing keys add as much as they have": partial(border_failures, total=SHARE),
    "borders add nothing": partial(bound_failures, border=0),
    "padding that the layer lacks adds nothing": partial(bound_failures, padding=0),
    "the middle of the range does not matter": partial(bound_failures, shift=0),
}
