"""The tests of ``learn/training``."""
