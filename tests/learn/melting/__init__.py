"""The tests of ``learn/melting``."""
