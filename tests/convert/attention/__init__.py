"""The tests of ``convert/attention``."""
