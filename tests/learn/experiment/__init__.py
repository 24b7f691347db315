"""The tests of ``learn/experiment``."""
