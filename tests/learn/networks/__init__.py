"""The tests of ``learn/networks``."""
