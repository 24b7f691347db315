"""Convinces: evidence that the construction of ``conv2attn.convert`` does what it claims.

Importing it imports neither torch nor sympy; ``prove`` does, in processes of its own.
"""

from .prover.claim import Check, Checks, Claim, Status, claim
from .prover.run import Outcome, Result, prove

__all__ = ["Check", "Checks", "Claim", "Outcome", "Result", "Status", "claim", "prove"]
