"""Runs the checks of claims, and writes the document about them."""
