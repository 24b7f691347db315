"""The tests of ``convert/engines``."""
