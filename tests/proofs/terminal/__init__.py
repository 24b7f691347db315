"""The tests of ``proofs/terminal``."""
