"""Heads that are trained: encodings of positions, content, and the layer that computes them."""
