"""The tests of ``convert/bounds``."""
