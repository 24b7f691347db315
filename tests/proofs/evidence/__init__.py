"""The tests of ``proofs/evidence``."""
