"""The tests of ``convert/model``."""
