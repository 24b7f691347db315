"""The tests of ``convert/files``."""
