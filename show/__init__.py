"""Draws: pages and pictures, from data. Opens no network."""
