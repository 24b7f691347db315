"""The tests of ``proofs/claims``."""
