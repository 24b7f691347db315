"""The tests of ``convert/heads``."""
