"""Whole networks: which layers are converted, and what came of it."""
