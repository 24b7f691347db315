"""Convinces: evidence that the construction of ``conv2attn.convert`` does what it claims.

Importing it imports neither torch nor sympy; ``prove`` does, in processes of its own.
"""

from .prover.claim import Check, Claim, Formula, Kind, Step
from .prover.runner import Result, Status, prove

__all__ = ["Check", "Claim", "Formula", "Kind", "Result", "Status", "Step", "prove"]
