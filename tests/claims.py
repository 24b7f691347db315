"""What the tests of claims share."""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from conv2attn.proofs.prover.claim import Claim
from conv2attn.proofs.prover.run import Outcome, decide


@cache
def _fails(claim: Claim, place: int) -> bool:
    """Whether the check at a place finds a failure; one that breaks finds none."""
    return decide(claim.checks[place]).outcome is Outcome.FAILS


def rejecting_checks(claim: Claim) -> frozenset[str]:
    """Names of the checks that find a failure in a claim."""
    return frozenset(check.name for place, check in enumerate(claim.checks) if _fails(claim, place))


def is_rejected(claim: Claim, name: str | None = None) -> bool:
    """Whether a check of the claim, or one of this name, finds a failure; no more are decided than it takes."""
    return any(_fails(claim, place) for place, check in enumerate(claim.checks) if name in (None, check.name))


def integers(*shape: int, largest: int = 9) -> Tensor:
    """Random integers as float64: sums of products of them are exact."""
    return torch.randint(-largest, largest + 1, shape, dtype=torch.float64)


def value(expression: Any, **symbols: float) -> float:
    """The value of an expression at these values of its symbols, computed exactly from binary fractions."""
    exact = {name: sp.Rational(number) for name, number in symbols.items()}
    return float(sp.sympify(expression).subs({s: exact[s.name] for s in sp.sympify(expression).free_symbols}))
