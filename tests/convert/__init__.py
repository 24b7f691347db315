"""The tests of ``convert``."""
