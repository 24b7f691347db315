"""Verification: layers and networks beside their convolutions."""
