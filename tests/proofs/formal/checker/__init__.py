"""The tests of ``proofs/formal/checker``."""
