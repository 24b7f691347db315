"""Mutation testing: are the tests able to fail? See docs/verification.md; run with ``make mutants``."""
