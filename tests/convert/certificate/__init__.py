"""The tests of ``convert/certificate``."""
