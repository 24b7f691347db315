"""The tests of ``convert/certificate/network``."""
