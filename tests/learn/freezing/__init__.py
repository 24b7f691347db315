"""The tests of ``learn/freezing``."""
