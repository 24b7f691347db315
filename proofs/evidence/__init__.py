"""Layers and networks beside their convolutions."""
