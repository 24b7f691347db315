"""The tests of ``proofs``."""
