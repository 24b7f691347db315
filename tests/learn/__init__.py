"""The tests of ``learn``."""
