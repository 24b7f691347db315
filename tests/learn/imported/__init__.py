"""The tests of ``learn/heads``."""
