"""The tests of ``proofs/benchmark``."""
