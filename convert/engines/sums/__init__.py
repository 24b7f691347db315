"""Sums over heads, with their derivatives by hand."""
