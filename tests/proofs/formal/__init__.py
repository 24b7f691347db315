"""The tests of ``proofs/formal``."""
