"""The tests of ``proofs/show``."""
