"""Encodings beside the quadratic one: Gaussian, sinusoidal, learned."""
