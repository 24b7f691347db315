"""Checkpoints and folders: read as carefully as they deserve, and written whole."""
