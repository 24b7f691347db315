"""The tests of ``convert/examples``."""
