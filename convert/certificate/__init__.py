"""Bounds on the distance of a layer or a network from its convolutions."""
