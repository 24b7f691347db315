"""Runs the checks of claims, and says what came of them."""
