"""Fuzzing of the readers."""
