"""Checks that a campaign makes of each layer."""
