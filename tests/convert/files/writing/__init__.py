"""The tests of ``convert/files/writing``."""
