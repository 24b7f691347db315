"""The tests of ``learn/data``."""
